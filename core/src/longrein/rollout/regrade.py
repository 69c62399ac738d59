"""Grade a finished run again: verdicts and rewards from its workspaces and trajectories, into a new file."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, evolve, field, frozen

from longrein.config import Config, task_sources
from longrein.errors import ConfigError, LongreinError, RecordError
from longrein.model import Finding, Outcome, Rollout, Task, Verdict
from longrein.rollout.check import check_verifiers
from longrein.rollout.grading import Grader
from longrein.rollout.ordered import ordered
from longrein.rollout.record import read_rollouts, read_workspace
from longrein.rollout.serialize import rollout_to_json
from longrein.rollout.tasks import named, open_taskset

if TYPE_CHECKING:
    from longrein.plugins import PluginHost

DAMAGED = (OSError, zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, ValueError)
"""What reading a broken archive raises."""


@frozen
class Change:
    """A rollout whose verdict or reward is another one now."""

    id: str
    status: tuple[str, str]
    score: tuple[float | None, float | None]
    reward: tuple[float | None, float | None]
    reason: str
    """Of the new verdict."""


@define
class RegradeReport:
    """What a regrade found."""

    file: Path
    reward: str
    """Name of the configured reward."""
    statuses: Counter[tuple[str, str]] = field(factory=Counter)
    """(old status, new status) to rollouts."""
    ungraded: Counter[str] = field(factory=Counter)
    """Why a rollout could not be graded again, to rollouts."""
    changes: list[Change] = field(factory=list)

    def add(self, old: Rollout, new: Rollout) -> None:
        """Count a rollout."""
        self.statuses[old.verdict.status, new.verdict.status] += 1
        if new.verdict.status == "unscorable":
            self.ungraded[new.verdict.reason] += 1
        if _gist(old) != _gist(new):
            status, score = (old.verdict.status, new.verdict.status), (old.verdict.score, new.verdict.score)
            self.changes.append(Change(old.id, status, score, (old.reward.value, new.reward.value), new.verdict.reason))


def _gist(rollout: Rollout) -> Any:
    verdict = rollout.verdict
    return verdict.status, verdict.score, [case.status for case in verdict.cases], rollout.reward.value


def regrade(
    folder: Path,
    config: Config,
    host: PluginHost,
    *,
    out: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> RegradeReport:
    """Grade every rollout of a run again and write them to a new file, in the same order.

    A rollout whose workspace, task or task digest is not what it was becomes unscorable with the reason; one whose session was
    never graded stays as it is. Hooks that reward groups are not asked.

    Args:
        folder: the run folder; nothing in it is changed.
        config: the run's config, with whatever should be different: reward, verifier options, task set options.
        host: the plugins that the config names.
        out: the new file; default the first free `regraded-N.jsonl` in `folder`.
        progress: called with the number of rollouts that are done and in all.

    Raises:
        ConfigError: `out` exists, or the config names something unknown.
        RecordError: the folder holds no rollouts, or a line is damaged.
        TaskError: no task set of the config can be read.
    """
    file = out or _free(folder)
    if file.exists():
        raise ConfigError(f"{file} exists; choose another --out")
    check_verifiers(config.verifiers, host)
    tasks, total = _all_tasks(folder, config, host)
    report = RegradeReport(file, config.reward.name)
    partial = file.with_name(f".{file.name}.part")
    try:
        asyncio.run(_regrade(folder, config, host, tasks, partial, report, lambda: progress(report.statuses.total(), total)))
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
    return report


def _free(folder: Path) -> Path:
    number = 1
    while (path := folder / f"regraded-{number}.jsonl").exists():
        number += 1
    return path


def _section(rollout: Rollout) -> str:
    return "eval" if rollout.phase.startswith("eval:") else "run"


Tasks = Mapping[str, Task] | LongreinError


def _all_tasks(folder: Path, config: Config, host: PluginHost) -> tuple[Mapping[str, Tasks], int]:
    """Return the tasks of a run by section, and how many rollouts there are."""
    wanted: dict[str, set[str]] = defaultdict(set)
    total = 0
    for rollout in read_rollouts(folder):
        wanted[_section(rollout)].add(rollout.task_id)
        total += 1
    if not total:
        raise RecordError(f"{folder} holds no finished rollout")
    tasks = {part: _tasks(config, part, ids, host) for part, ids in wanted.items()}
    errors = [found for found in tasks.values() if isinstance(found, LongreinError)]
    if len(errors) == len(tasks):
        raise errors[0]
    return tasks, total


def _tasks(config: Config, section: str, ids: Iterable[str], host: PluginHost) -> Tasks:
    """Return the tasks with these ids, or why the task set cannot be read."""
    sources = task_sources(config.eval if section == "eval" and config.eval is not None else config)
    missing, found = set(ids), dict[str, Task]()
    try:
        for name, source in sources.items():
            for task in (named(task, name) for task in open_taskset(source, host).tasks()):
                if task.id in missing:
                    missing.remove(task.id)
                    found[task.id] = task
                    if not missing:
                        return found
    except LongreinError as error:
        return error
    return found


async def _regrade(
    folder: Path,
    config: Config,
    host: PluginHost,
    tasks: Mapping[str, Tasks],
    partial: Path,
    report: RegradeReport,
    progress: Callable[[], None],
) -> None:
    reward = host.reward(config.reward.name, config.reward.options)
    with tempfile.TemporaryDirectory(prefix="lr-") as name, partial.open("xb") as file:
        grader = Grader(host, Path(name), config.verifiers)

        async def again(old: Rollout) -> tuple[Rollout, Rollout]:
            new = await _graded(folder, old, tasks[_section(old)], grader)
            findings: list[Finding] = []
            new = evolve(new, reward=await host.compute_reward(new, reward, findings))
            return old, evolve(new, session=evolve(new.session, workspace={}, findings=(*new.session.findings, *findings)))

        try:
            async with aclosing(ordered(again, read_rollouts(folder), at_once=os.cpu_count() or 1)) as pairs:
                async for old, new in pairs:
                    line = json.dumps(rollout_to_json(new), ensure_ascii=False, separators=(",", ":")) + "\n"
                    file.write(line.encode("utf-8", "surrogatepass"))
                    report.add(old, new)
                    progress()
        finally:
            grader.close()


async def _graded(folder: Path, rollout: Rollout, tasks: Tasks, grader: Grader) -> Rollout:
    """Return the rollout with its workspace and a new verdict."""
    outcome = rollout.outcome
    if outcome.kind == "verifier_error":  # the session itself was sound
        outcome = Outcome(outcome.ended or "completed", acted=outcome.acted)
    if not outcome.graded:
        return rollout
    task = tasks.get(rollout.task_id) if isinstance(tasks, Mapping) else None
    if task is None:
        return _unscorable(rollout, outcome, str(tasks) if isinstance(tasks, LongreinError) else "the task set no longer has this task")
    if task.digest != rollout.task_digest:
        return _unscorable(rollout, outcome, f"the task has changed: digest {rollout.task_digest[:12]} then, {task.digest[:12]} now")
    try:
        workspace = await asyncio.to_thread(read_workspace, folder, rollout.id)
    except FileNotFoundError:
        return _unscorable(rollout, outcome, "the workspace archive is missing")
    except DAMAGED as error:
        return _unscorable(rollout, outcome, f"the workspace archive is damaged: {error}")
    verdict = await grader.grade(task.ref, task.verifier, workspace)
    if verdict.status == "unscorable":
        return _unscorable(rollout, outcome, verdict.reason, verdict)
    return evolve(rollout, verdict=verdict, session=evolve(rollout.session, outcome=outcome, workspace=workspace))


def _unscorable(rollout: Rollout, outcome: Outcome, reason: str, verdict: Verdict | None = None) -> Rollout:
    error = Outcome("verifier_error", reason, acted=outcome.acted, ended=outcome.kind)
    return evolve(rollout, verdict=verdict or Verdict.unscorable(reason), session=evolve(rollout.session, outcome=error))
