"""The environment of one rollout: opened when its session has a slot, kept until its verdict is in."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from longrein.environment import Environment
from longrein.errors import EnvironmentFailed, LongreinError
from longrein.model import Verdict
from longrein.plugins.guard import describe
from longrein.verifier import TaskSet


class Lease:
    """Holds the environment of one session; an async context manager that closes it.

    Args:
        taskset: a task set with environments.
        task_id: one of its tasks.
    """

    def __init__(self, taskset: TaskSet, task_id: str) -> None:
        self._taskset, self._task_id = taskset, task_id
        self._stack = AsyncExitStack()
        self._environment: Environment | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(Exception):  # plugin code; the verdict is in
            await self._stack.aclose()

    async def open(self) -> Environment:
        """Return the environment, freshly made.

        Raises:
            EnvironmentFailed: it cannot be had; the message has the cause.
        """
        try:
            self._environment = await self._stack.enter_async_context(self._taskset.environment(self._task_id))
        except Exception as error:  # plugin code, or a server elsewhere
            raise EnvironmentFailed(_cause(error)) from error
        return self._environment

    async def verdict(self) -> Verdict:
        """Return the environment's verdict; trouble is unscorable with its cause, never an exception."""
        assert self._environment is not None, "a session that was graded had an environment"
        try:
            verdict = await self._environment.verdict()
        except Exception as error:
            return Verdict.unscorable(_cause(error))
        return verdict if isinstance(verdict, Verdict) else Verdict.unscorable(f"the environment answered {verdict!r:.200}, no Verdict")


def _cause(error: Exception) -> str:
    return str(error) if isinstance(error, LongreinError) else describe(error)
