"""Grading: the one place where hidden data is resolved, on a private copy of a workspace, after every process is dead."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attrs import evolve

from longrein.errors import LongreinError
from longrein.model import Finding, TaskRef, Verdict
from longrein.plugins.guard import BadAnswer, ask_async, describe

if TYPE_CHECKING:
    from longrein.plugins import PluginHost
    from longrein.verifier import TaskSet, Verifier


class Tasksets:
    """The task sets that references name, each made once.

    Args:
        host: knows task sets.
    """

    def __init__(self, host: PluginHost) -> None:
        self._host = host
        self._made: dict[str, TaskSet] = {}

    def of(self, ref: TaskRef) -> TaskSet:
        """Return the task set that `ref` names."""
        key = repr((ref.taskset, sorted(ref.options.items(), key=repr)))
        if key not in self._made:
            self._made[key] = self._host.taskset(ref.taskset, ref.options)
        return self._made[key]

    def close(self) -> None:
        """Release what they hold."""
        for taskset in self._made.values():
            taskset.close()


class Grader:
    """Grades workspaces; keeps one task set and one verifier of each kind.

    Args:
        host: knows task sets and verifiers.
        folder: where private copies are made; deleted after each grade.
        options: verifier name to its options.
    """

    def __init__(self, host: PluginHost, folder: Path, options: Mapping[str, Mapping[str, Any]] = MappingProxyType({})) -> None:
        self._host, self._folder, self._options = host, folder, options
        self._tasksets = Tasksets(host)
        self._verifiers: dict[str, Verifier] = {}

    def taskset(self, ref: TaskRef) -> TaskSet:
        """Return the task set that `ref` names, made once."""
        return self._tasksets.of(ref)

    async def grade(self, ref: TaskRef, verifier: str, workspace: Mapping[str, bytes]) -> Verdict:
        """Return the verdict on a task's workspace; trouble of ours is unscorable with its cause, never an exception."""
        try:
            hidden = await asyncio.to_thread(self.taskset(ref).hidden, ref.task_id)
        except Exception as error:  # a task set is plugin code
            return Verdict.unscorable(f"task set {ref.taskset!r}: {describe(error)}")
        verdict = await self.grade_hidden(hidden, verifier, workspace)
        # Expected outputs are hidden data: rollouts and their records never hold them (`longrein grade` shows them).
        return evolve(verdict, cases=tuple(evolve(case, expected="") for case in verdict.cases))

    async def grade_hidden(self, hidden: Any, verifier: str, workspace: Mapping[str, bytes]) -> Verdict:
        """Return the verdict against hidden data that is at hand."""
        findings: list[Finding] = []
        try:
            if verifier not in self._verifiers:
                self._verifiers[verifier] = self._host.verifier(verifier, self._options.get(verifier, {}))
            grade = self._verifiers[verifier].grade
            with tempfile.TemporaryDirectory(dir=self._folder, prefix="grade-") as name:
                await asyncio.to_thread(unpack, workspace, Path(name))
                verdict = await ask_async(
                    partial(grade, hidden, Path(name)), _verdict, source=f"verifier {verifier!r}", hook="grade", findings=findings
                )
        except (LongreinError, OSError, ValueError) as error:
            return Verdict.unscorable(str(error))
        return verdict or Verdict.unscorable("; ".join(f"{finding.source} {finding.message}" for finding in findings))

    def close(self) -> None:
        """Release what verifiers and task sets hold (worker processes)."""
        for verifier in self._verifiers.values():
            verifier.close()
        self._tasksets.close()


def _verdict(answer: Any) -> Verdict:
    if not isinstance(answer, Verdict):
        raise BadAnswer(f"{answer!r:.200}; it takes a Verdict")
    return answer


def unpack(workspace: Mapping[str, bytes], folder: Path) -> None:
    """Write a workspace below `folder`; a path that would leave it is refused."""
    for name, content in workspace.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"workspace path {name!r} leaves the workspace")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
