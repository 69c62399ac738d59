"""`longrein tasks` and `longrein grade`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from longrein.cli.flags import Json

app = typer.Typer(no_args_is_help=True, help="Look at task sets.")
SHOWN = 20
"""Ids of rejected rows in a table."""


@app.command("list")
def list_tasksets(as_json: Json = False) -> None:
    """List the registered task sets."""
    from longrein.cli.output import say, show_json, show_table
    from longrein.plugins import PluginHost

    names = PluginHost.load().names("taskset")
    show_json(names) if as_json else show_table(("task set",), [(name,) for name in names])
    say("next: longrein tasks show NAME")


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A task set, name:config, or a folder ending in /.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Read the first so many tasks.")] = 20,
    rejected: Annotated[bool, typer.Option("--rejected", help="List the rows that cannot be used, by reason.")] = False,
    sets: Annotated[list[str] | None, typer.Option("--set", help="An option of the task set: key=value.")] = None,
    as_json: Json = False,
) -> None:
    """Show the tasks of a task set as an agent sees them, or the rejected rows."""
    import itertools

    from longrein import config as configs
    from longrein.cli.output import say, show_json, show_table
    from longrein.plugins import PluginHost
    from longrein.rollout.tasks import open_taskset

    flags = [f"taskset.name={name!r}", *(f"taskset.options.{item}" for item in sets or ())]
    sources = configs.task_sources(configs.from_mapping({"agents": {"nop": {}}}, flags))
    taskset = open_taskset(sources[""], PluginHost.load())
    if taskset.training_refused:
        say(f"cannot be trained on: {taskset.training_refused}", style="yellow")
    if rejected:
        n_tasks = sum(1 for _ in taskset.tasks())  # not kept: a data set may be larger than memory
        if as_json:
            show_json(taskset.rejected)
        else:
            show_table(("reason", "rows", "ids"), [(why, len(ids), _some(ids)) for why, ids in taskset.rejected.items()])
        say(f"{n_tasks} tasks, {sum(map(len, taskset.rejected.values()))} rejected; next: longrein gold {name}")
        return
    tasks = list(itertools.islice(taskset.tasks(), limit))
    if as_json:
        show_json([{"id": t.id, "digest": t.digest, "verifier": t.verifier, "public": t.public, "metadata": t.metadata} for t in tasks])
    else:
        show_table(
            ("id", "verifier", "examples", "prompt"),
            [(t.id, t.verifier, len(t.public.examples), t.public.prompt.splitlines()[0][:100]) for t in tasks],
        )
    n_rejected = sum(map(len, taskset.rejected.values()))
    say(f"{len(tasks)} tasks, {n_rejected} rejected; next: longrein run --taskset {name} --agent nop --limit 2")


def grade(
    taskset: Annotated[str, typer.Option(help="A task set; deepcoder takes any row.")],
    workspace: Annotated[Path, typer.Option(exists=True, file_okay=False, help="Folder to grade; it is not changed.")],
    row: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help="A JSON file with one row of the data set.")] = None,
    task: Annotated[str | None, typer.Option(help="A task id of the task set, instead of --row.")] = None,
    config: Annotated[str | None, typer.Option(help="The row's config, for example taco.")] = None,
    as_json: Json = False,
) -> None:
    """Grade a folder: all cases of a row, or the hidden cases of a task. A rejected row exits 2."""
    from longrein import api
    from longrein.cli.output import say, show_json, show_table
    from longrein.errors import ConfigError, TaskError
    from longrein.plugins import PluginHost

    host = PluginHost.load()
    if (row is None) == (task is None):
        raise ConfigError("grade takes either --row FILE or --task ID")
    if task is not None:
        verdict = api.grade(f"{taskset}:{config}" if config else taskset, task, workspace, host=host)
    else:
        try:
            verdict = api.grade_row(taskset, _read_row(row or Path()), workspace, config=config, host=host)
        except TaskError as error:
            show_json({"status": "rejected", "score": None, "reason": str(error), "cases": []}) if as_json else say(f"rejected: {error}")
            sys.exit(2)
    if as_json:
        show_json({"status": verdict.status, "score": verdict.score, "reason": verdict.reason, "cases": verdict.cases})
    else:
        show_table(("case", "status", "detail"), [(i, case.status, case.detail) for i, case in enumerate(verdict.cases)])
        say(f"{verdict.status}, score {verdict.score}: {verdict.reason or 'no remark'}")


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN} more (--json lists all)" if len(ids) > SHOWN else ""
    return ", ".join(ids[:SHOWN]) + more


def _read_row(path: Path) -> dict[str, Any]:
    from longrein.errors import TaskError

    try:
        row = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise TaskError(f"{path} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise TaskError(f"{path} must hold one JSON object, got {type(row).__name__}")
    return row
