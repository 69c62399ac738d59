"""`longrein doctor`, `plugins` and `turns`: look at the installation and at runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from longrein.cli.flags import Json


def plugins(as_json: Json = False) -> None:
    """List plugins: name, distribution, version, hooks, kind, state."""
    from longrein.cli.output import say, show_json, show_table
    from longrein.plugins import PluginHost

    host = PluginHost.load()
    if as_json:
        show_json(host.plugins)
        return
    show_table(
        ("plugin", "distribution", "version", "sdk", "kind", "state", "hooks", "reason"),
        [(p.name, p.distribution, p.version, p.sdk, p.kind, p.state, _short(p.hooks), p.reason) for p in host.plugins],
    )
    say("next: longrein agents list")


def _short(hooks: Sequence[str]) -> str:
    return ", ".join(hook.removeprefix("longrein_") for hook in hooks)


def doctor(as_json: Json = False) -> None:
    """Check what this machine can do: Python, Node.js, sandboxes, agents, extras; exit 1 when nothing could run."""
    from longrein.cli.checks import machine_checks
    from longrein.cli.output import say, show_json, show_table
    from longrein.plugins import PluginHost

    checks = machine_checks(PluginHost.load())
    if as_json:
        show_json(checks)
    else:
        show_table(("check", "state", "found", "to mend it"), [(c.name, c.state, c.found, c.mend) for c in checks])
        to_mend = next((check.mend for check in checks if check.state == "missing" and check.mend and not check.optional), None)
        say(f"next: {to_mend or 'longrein run --agent aider --taskset practice --limit 2 --policy practice'}")
    if any(check.state == "missing" and check.required for check in checks):
        sys.exit(1)


def turns(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    examples: Annotated[int, typer.Option(help="Show so many examples of each label and reason.")] = 0,
    as_json: Json = False,
) -> None:
    """Show what became of every model call of a run: labels, reasons, who decided, how histories continued."""
    from longrein.cli.output import say, show_json, show_table
    from longrein.rollout.record import read_rollouts
    from longrein.turns import audit

    report = audit(((rollout.agent, rollout.trajectory) for rollout in read_rollouts(folder)), examples=examples)
    if as_json:
        show_json(report)
        return
    for agent in report.agents:
        show_table(
            ("label", "reason", "decided by", "turns", "tokens"),
            [(row.label, row.reason, row.decided_by, row.turns, row.tokens) for row in agent.rows],
            title=f"{agent.agent}: {agent.turns} turns, {agent.unlabelled} unlabelled, {agent.truncated} cut by length",
        )
        if agent.transitions:
            show_table(
                ("transition", "calls", "tokens"), [(kind, n, agent.transition_tokens.get(kind)) for kind, n in agent.transitions.items()]
            )
        shown = [(row.label, example.call_id, example.asked, example.replied) for row in agent.rows for example in row.examples]
        if shown:
            show_table(("label", "call", "asked", "replied"), shown)
    say(f"next: longrein turns {folder} --json")
