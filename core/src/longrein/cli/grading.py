"""`longrein gold` and `longrein regrade`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longrein.cli.flags import Json

if TYPE_CHECKING:
    from longrein.config import Config
    from longrein.rollout.gold import GoldReport
    from longrein.rollout.regrade import RegradeReport

EVERY_S = 2.0
"""Between two progress lines."""
ORDER = ("failed", "unscorable", "no solution")


def gold(
    name: Annotated[str, typer.Argument(help="A task set, name:config, or a folder ending in /.")],
    limit: Annotated[int | None, typer.Option(min=1, help="Grade the first so many tasks.")] = None,
    out: Annotated[Path | None, typer.Option(help="The list to write; default gold-NAME.txt.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="An option of the task set: key=value.")] = None,
    verifier: Annotated[list[str] | None, typer.Option(help="An option of a verifier: NAME.key=value.")] = None,
    as_json: Json = False,
) -> None:
    """Grade the solutions that a task set comes with, and list those that fail, for `[taskset] exclude`."""
    from longrein.cli.output import say
    from longrein.config import task_sources
    from longrein.errors import ConfigError, RunStopped
    from longrein.plugins import PluginHost
    from longrein.rollout.gold import GoldReport
    from longrein.rollout.gold import gold as grade_solutions

    config = _gold_config(name, limit, sets or (), verifier or ())
    file = out or Path(f"gold-{name.strip('./').replace(':', '-').replace('/', '-')}.txt")
    if file.exists():
        raise ConfigError(f"{file} exists; choose another --out, or remove it first")
    host = PluginHost.load()
    report, due = GoldReport(name), _ticker()

    def progress(so_far: GoldReport) -> None:
        if due():
            say(f"{so_far.counts.total()} tasks: {', '.join(f'{n} {status}' for status, n in so_far.counts.items())}")

    try:
        grade_solutions(task_sources(config)[""], host, verifiers=config.verifiers, report=report, progress=progress)
    finally:
        if report.counts:
            file.write_text(report.text(), encoding="utf-8", errors="replace")
            say(f"wrote {file}{'' if report.finished else ', which is not finished'}")
    _show_gold(report, file, as_json=as_json)
    if report.unscorable and not report.counts["passed"] + report.counts["failed"]:
        raise RunStopped(f"no solution could be graded; the first was {report.unscorable[0].task_id}: {report.unscorable[0].reason}")
    say(f"{len(report.failed)} failed; next: longrein train CONFIG --set taskset.exclude={file}")


def _gold_config(name: str, limit: int | None, sets: Sequence[str], verifier: Sequence[str]) -> Config:
    from longrein import config as configs

    flags = [f"taskset.name={name!r}", *(f"taskset.options.{item}" for item in sets), *(f"verifiers.{item}" for item in verifier)]
    return configs.from_mapping({"agents": {"nop": {}}}, [*flags, *([] if limit is None else [f"taskset.limit={limit}"])])


def _ticker() -> Callable[[], bool]:
    """Return what says whether a progress line is due."""
    told = time.monotonic()

    def due() -> bool:
        nonlocal told
        if time.monotonic() - told < EVERY_S:
            return False
        told = time.monotonic()
        return True

    return due


def _show_gold(report: GoldReport, file: Path, *, as_json: bool) -> None:
    from longrein.cli.output import show_json, show_table

    rows = [(status, kind, n) for (status, kind), n in report.reasons.most_common()]
    rows = [("passed", "", report.counts["passed"]), *sorted(rows, key=lambda row: ORDER.index(row[0]))]
    rows += [("rejected", reason, len(ids)) for reason, ids in report.rejected.items()]
    if as_json:
        reasons = [dict(zip(("status", "reason", "tasks"), row, strict=True)) for row in rows]
        show_json({"file": file, "statuses": report.counts, "reasons": reasons, "failed": report.failed, "unscorable": report.unscorable})
    else:
        show_table(("status", "reason", "tasks"), rows)


def regrade(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder; nothing in it is changed.")],
    reward: Annotated[str | None, typer.Option(help="Another reward, with its default options.")] = None,
    out: Annotated[Path | None, typer.Option(help="The file to write; default RUN/regraded-N.jsonl.")] = None,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Override a key of the run's config: a.b=value.")] = None,
    as_json: Json = False,
) -> None:
    """Grade a run again, offline, from its workspaces and trajectories, into a new file."""
    from longrein import config as configs
    from longrein.cli.output import say
    from longrein.errors import RecordError
    from longrein.plugins import PluginHost
    from longrein.rollout.regrade import regrade as grade_again

    if not (folder / "config.toml").is_file():
        raise RecordError(f"{folder} holds no run: there is no config.toml")
    flags = [f"reward.name={reward!r}", "reward.options={}"] if reward is not None else []
    config = configs.load(folder / "config.toml", [*flags, *(sets or ())])
    host = PluginHost.load(config.plugins.use)
    due = _ticker()

    def progress(done: int, total: int) -> None:
        if due():
            say(f"[{done}/{total}] regraded")

    report = grade_again(folder, config, host, out=out, progress=progress)
    _show_regrade(report, as_json=as_json)
    say(f"{len(report.changes)} of {report.statuses.total()} rollouts changed; wrote {report.file}; next: longrein turns {report.file}")


def _show_regrade(report: RegradeReport, *, as_json: bool) -> None:
    from longrein.cli.output import show_json, show_table

    statuses = [(old, new, n) for (old, new), n in sorted(report.statuses.items())]
    if as_json:
        counts = [dict(zip(("old", "new", "rollouts"), row, strict=True)) for row in statuses]
        show_json(
            {"file": report.file, "reward": report.reward, "statuses": counts, "ungraded": report.ungraded, "changes": report.changes}
        )
        return
    show_table(("old status", "new status", "rollouts"), statuses)
    if report.ungraded:
        show_table(("not graded again", "rollouts"), report.ungraded.most_common())
    if report.changes:
        changes = [(c.id, " -> ".join(c.status), _pair(c.score), _pair(c.reward), c.reason) for c in report.changes]
        show_table(("changed", "status", "score", "reward", "reason"), changes)


def _pair(values: tuple[float | None, float | None]) -> str:
    return " -> ".join("-" if value is None else f"{value:g}" for value in values)
