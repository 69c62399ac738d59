"""Grade the solutions that a task set comes with: what its own solution fails cannot be learned from."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import aclosing
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from attrs import define, field, frozen

from longrein.config import TasksetConfig
from longrein.errors import TaskError
from longrein.model import Task, Verdict
from longrein.plugins.guard import describe
from longrein.rollout.check import check_verifiers
from longrein.rollout.grading import Grader
from longrein.rollout.ordered import ordered
from longrein.rollout.tasks import open_taskset

if TYPE_CHECKING:
    from longrein.plugins import PluginHost
    from longrein.verifier import TaskSet


@frozen
class GoldResult:
    """What became of one task's own solution."""

    task_id: str
    status: Literal["passed", "failed", "unscorable", "no solution"]
    reason: str = ""
    kind: str = ""
    """For counting: the first case that did not pass, such as "wrong_answer"; else like `reason`."""

    @classmethod
    def of(cls, task_id: str, verdict: Verdict) -> GoldResult:
        """Return the result of a graded solution."""
        first = next((case.status for case in verdict.cases if case.status != "passed"), verdict.reason)
        return cls(task_id, verdict.status, " ".join(verdict.reason.split()), "" if verdict.status == "passed" else first)


@define
class GoldReport:
    """The results so far, in the order of the tasks; those that passed are only counted."""

    taskset: str
    counts: Counter[str] = field(factory=Counter)
    """Status to tasks."""
    reasons: Counter[tuple[str, str]] = field(factory=Counter)
    """(status, kind) to tasks, without those that passed."""
    failed: list[GoldResult] = field(factory=list)
    unscorable: list[GoldResult] = field(factory=list)
    rejected: Mapping[str, list[str]] = field(factory=dict)
    """Rows that are no task, by reason."""
    finished: bool = False

    def add(self, result: GoldResult) -> None:
        """Count a result."""
        self.counts[result.status] += 1
        if result.status != "passed":
            self.reasons[result.status, result.kind] += 1
        if result.status in ("failed", "unscorable"):
            getattr(self, result.status).append(result)

    def text(self) -> str:
        """Return the list for `[taskset] exclude`: ids of failures with the reason as a comment; the others are comments only."""
        counts = ", ".join(f"{n} {status}" for status, n in self.counts.items())
        head = [f"# longrein gold {self.taskset}: {counts or 'no task'}{'' if self.finished else '; not finished'}"]
        failed = [f"{result.task_id}  # {result.reason}" for result in self.failed]
        open_ = [f"# unscorable, not excluded: {result.task_id}: {result.reason}" for result in self.unscorable]
        return "\n".join([*head, *failed, *open_]) + "\n"


def gold(
    config: TasksetConfig,
    host: PluginHost,
    *,
    verifiers: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    report: GoldReport | None = None,
    progress: Callable[[GoldReport], None] = lambda report: None,
) -> GoldReport:
    """Grade a task set's own solutions with its verifier on all cases, public ones included, as many at once as there are cores.

    Args:
        config: which task set, with its options and limit; `exclude` is not read.
        host: the loaded plugins.
        verifiers: verifier name to its options.
        report: filled as results come, so that an interrupted caller has them.
        progress: called after each result.

    Raises:
        ConfigError, TaskError: the task set cannot be opened, or has no task; an unknown verifier or option.
    """
    check_verifiers(verifiers, host)
    report = report or GoldReport(config.name)
    taskset = open_taskset(config, host)
    try:
        asyncio.run(_gold(taskset, config.limit, host, verifiers, report, progress))
    finally:
        report.rejected = taskset.rejected
    if not report.counts:
        raise TaskError(f"task set {config.name!r} gave no task; see `longrein tasks show {config.name} --rejected`")
    report.finished = True
    return report


async def _gold(
    taskset: TaskSet,
    limit: int | None,
    host: PluginHost,
    verifiers: Mapping[str, Mapping[str, Any]],
    report: GoldReport,
    progress: Callable[[GoldReport], None],
) -> None:
    with tempfile.TemporaryDirectory(prefix="lr-") as name:
        grader = Grader(host, Path(name), verifiers)

        async def grade(task: Task) -> GoldResult:
            try:
                solution = await asyncio.to_thread(taskset.solution, task.id)
                if not solution:
                    return GoldResult(task.id, "no solution")
                hidden = await asyncio.to_thread(taskset.all_cases, task.id)
            except Exception as error:  # a task set is plugin code
                return GoldResult(task.id, "unscorable", describe(error), "task set")
            files = {path: text.encode("utf-8", "surrogatepass") for path, text in {**task.public.files, **solution}.items()}
            return GoldResult.of(task.id, await grader.grade_hidden(hidden, task.verifier, files))

        try:
            tasks: Iterator[Task] = islice(taskset.tasks(), limit)
            async with aclosing(ordered(grade, tasks, at_once=os.cpu_count() or 1)) as results:
                async for result in results:
                    report.add(result)
                    progress(report)
        finally:
            grader.close()
