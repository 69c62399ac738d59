"""Grading: the one place where hidden data is resolved, on a private copy of a workspace, after every process is dead."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from longrein.errors import LongreinError
from longrein.model import TaskRef, Verdict

if TYPE_CHECKING:
    from longrein.plugins import PluginHost
    from longrein.verifier import TaskSet, Verifier


class Grader:
    """Grades workspaces; keeps one task set and one verifier of each kind.

    Args:
        host: knows task sets and verifiers.
        folder: where private copies are made; deleted after each grade.
    """

    def __init__(self, host: PluginHost, folder: Path) -> None:
        self._host, self._folder = host, folder
        self._tasksets: dict[str, TaskSet] = {}
        self._verifiers: dict[str, Verifier] = {}

    def taskset(self, ref: TaskRef) -> TaskSet:
        """Return the task set that `ref` names, made once."""
        key = repr((ref.taskset, sorted(ref.options.items(), key=repr)))
        if key not in self._tasksets:
            self._tasksets[key] = self._host.taskset(ref.taskset, ref.options)
        return self._tasksets[key]

    async def grade(self, ref: TaskRef, verifier: str, workspace: Mapping[str, bytes]) -> Verdict:
        """Return the verdict; the grader's own trouble is unscorable with its cause, never an exception."""
        try:
            if verifier not in self._verifiers:
                self._verifiers[verifier] = self._host.verifier(verifier)
            chosen = self._verifiers[verifier]
            hidden = await asyncio.to_thread(self.taskset(ref).hidden, ref.task_id)
            with tempfile.TemporaryDirectory(dir=self._folder, prefix="grade-") as name:
                copy = Path(name)
                await asyncio.to_thread(unpack, workspace, copy)
                if inspect.iscoroutinefunction(chosen.grade):
                    verdict = await chosen.grade(hidden, copy)
                else:
                    verdict = await asyncio.to_thread(chosen.grade, hidden, copy)
        except LongreinError as error:
            return Verdict.unscorable(str(error))
        except Exception as error:  # a verifier is plugin code
            return Verdict.unscorable(f"verifier {verifier!r} raised {type(error).__name__}: {error}")
        if not isinstance(verdict, Verdict):
            return Verdict.unscorable(f"verifier {verifier!r} returned {type(verdict).__name__}, not a Verdict")
        return verdict

    def close(self) -> None:
        """Release what verifiers hold (worker processes)."""
        for verifier in self._verifiers.values():
            verifier.close()


def unpack(workspace: Mapping[str, bytes], folder: Path) -> None:
    """Write a workspace below `folder`; a path that would leave it is refused."""
    for name, content in workspace.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise ValueError(f"workspace path {name!r} leaves the workspace")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
