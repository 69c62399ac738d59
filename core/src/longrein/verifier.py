"""What a task set and a verifier are. A task set knows tasks and hides data; a verifier grades a workspace with it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar

from longrein.environment import Environment
from longrein.errors import TaskError
from longrein.model import Task, Verdict
from longrein.options import NoOptions


class TaskSet(ABC):
    """A source of tasks. `tasks` gives what agents may see; `hidden` is called in the verifier's process only."""

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    has_environments: ClassVar[bool] = False
    """True when every session on a task has an environment, which gives it tools and grades it in place of a verifier."""

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options
        self.rejected: dict[str, list[str]] = {}
        """Reason to ids of the rows that could not be used, filled while `tasks` is read."""

    @property
    def training_refused(self) -> str | None:
        """Why this set must not be trained on, or None."""
        return None

    @abstractmethod
    def tasks(self) -> Iterator[Task]:
        """Yield the tasks in a fixed order, streaming."""

    @abstractmethod
    def hidden(self, task_id: str) -> Any:
        """Return the hidden data of a task as plain data for its verifier.

        Raises:
            TaskError: there is no such task.
        """

    def solution(self, task_id: str) -> Mapping[str, str] | None:
        """Return path to text of a known right solution, or None when there is none."""
        return None

    def all_cases(self, task_id: str) -> Any:
        """Return `hidden` with every case of the task, also those that agents are shown; for checks of the task itself.

        Raises:
            TaskError: there is no such task.
        """
        return self.hidden(task_id)

    def row(self, row: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the verifier's name and the hidden data with *all* cases of one raw row of the data set.

        Raises:
            TaskError: the row cannot be used; the message is the reason. Also for task sets that are not made of rows.
        """
        raise TaskError(f"task set {self.name!r} is not made of rows; name one of its tasks instead")

    def environment(self, task_id: str) -> AbstractAsyncContextManager[Environment]:
        """Return a fresh environment for one session, closed when its verdict is in; for sets with `has_environments`.

        It is opened when the session has its slot; what goes wrong there makes the session unscorable.
        """
        raise TaskError(f"task set {self.name!r} has no environments")

    def close(self) -> None:  # noqa: B027 - most task sets hold nothing
        """Release processes and connections; called once when a run ends."""


class Verifier(ABC):
    """Grades a workspace against hidden data."""

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions
    contract: ClassVar[str | None] = None
    """"module:Class" of the `longrein.testing.VerifierContract` with samples of its tasks, for `longrein check verifier NAME`."""

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @abstractmethod
    def grade(self, hidden: Any, workspace: Path) -> Verdict | Awaitable[Verdict]:
        """Return the verdict on `workspace`, a private copy that may be changed and is deleted afterwards.

        May be a coroutine function; a plain function runs in a thread. Trouble of the grader's own is
        `Verdict.unscorable`, or an exception, which the host turns into one.
        """

    def close(self) -> None:  # noqa: B027 - most verifiers hold nothing
        """Release worker processes and the like; called once when a run ends."""
