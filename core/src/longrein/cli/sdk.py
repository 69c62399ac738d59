"""`longrein new` and `longrein check`: for authors of plugins."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from longrein.cli.flags import Json


class Made(StrEnum):
    """What `new` makes."""

    adapter = "adapter"
    verifier = "verifier"


class Checked(StrEnum):
    """What `check` checks."""

    adapter = "adapter"
    verifier = "verifier"
    sandbox = "sandbox"


def new(
    kind: Annotated[Made, typer.Argument(help="What to make.")],
    name: Annotated[str, typer.Argument(help="Its name in configs; the distribution is longrein-NAME.")],
    out: Annotated[Path | None, typer.Option(help="Folder to make; default longrein-NAME.")] = None,
) -> None:
    """Make a small distribution that installs and passes its tests as it is."""
    from longrein import templates
    from longrein.cli.output import say

    folder = out or Path(f"longrein-{name}")
    for path in templates.create(kind.value, name, folder):
        print(path)
    say(f"wrote {folder}; next: pip install -e {folder} && longrein check {kind.value} {name}")


def check(
    kind: Annotated[Checked, typer.Argument(help="What it is.")],
    name: Annotated[str, typer.Argument(help="Its registered name.")],
    sets: Annotated[list[str] | None, typer.Option("--set", help="Give an option of its config section: key=value.")] = None,
    as_json: Json = False,
) -> None:
    """Try an installed adapter, verifier or sandbox against its contract; exit 1 when a check fails."""
    from longrein.cli.output import say, show_json, show_table
    from longrein.rollout.policy import need_extra

    need_extra("run", "openenv", "uvicorn", "httpx")
    from longrein.config import from_mapping
    from longrein.options import structure
    from longrein.plugins import PluginHost
    from longrein.testing.contract import contract_of, quiet

    registered: Any = PluginHost.load().get("agent" if kind is Checked.adapter else kind.value, name)
    options = from_mapping({"taskset": "none", "agents": {name: {}}}, [f"agents.{name}.{item}" for item in sets or ()]).agents[name]
    contract = contract_of(kind.value, registered, options)
    section = {Checked.adapter: f"agents.{name}", Checked.verifier: f"verifiers.{name}", Checked.sandbox: "sandbox.options"}[kind]
    structure(registered.Options, contract.options, where=f"[{section}]")
    say(f"trying {kind.value} {name} ({len(contract.checks())} checks)")
    with quiet():
        results = list(contract.results())
    if as_json:
        show_json(results)
    else:
        show_table(("check", "result", "what holds", "reason"), [(r.check.replace("_", " "), r.state, r.says, r.reason) for r in results])
    failed = [result.check for result in results if result.state == "failed"]
    held = sum(result.state == "held" for result in results)
    if failed:
        say(f"{kind.value} {name}: {len(failed)} of {len(results)} checks failed: {', '.join(failed)}", style="red")
        sys.exit(1)
    say(f"{kind.value} {name}: {held} checks held, {len(results) - held} did not apply", style="green")
