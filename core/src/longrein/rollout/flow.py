"""How many rollouts are under way: those that sample, and those whose grade is awaited."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from longrein.config import Config
from longrein.rollout.changes import Changes

WAITING_PER_CORE = 4


class Flow:
    """Lets a rollout begin while a session is free and the graders keep up.

    Sampling stops only when four rollouts for each core that grades have sampled and are not finished; it goes on with the next that
    is. So a slow grader bounds what is held in memory, and a quick one is never waited for.

    Args:
        config: its limits and executor say how many sessions and cores there are.
    """

    def __init__(self, config: Config) -> None:
        executor = config.executor
        cores = os.cpu_count() or 1 if executor.name == "local" else max(1, int(executor.graders * executor.grader_cpus))
        self._sessions, self._most_waiting = config.limits.sessions, WAITING_PER_CORE * cores
        self._sampling = self._waiting = 0
        self._changed = Changes()

    @property
    def n_workers(self) -> int:
        """How many rollouts can be under way at most, each in a coroutine."""
        return self._sessions + self._most_waiting

    @asynccontextmanager
    async def rollout(self) -> AsyncIterator[Callable[[], None]]:
        """Wait until one more session may begin; the context is the rollout. Yields what is to be called when the session has ended."""
        while self._sampling >= self._sessions or self._waiting >= self._most_waiting:
            await self._changed.wait()
        self._sampling += 1
        sampling = True

        def sampled() -> None:
            nonlocal sampling
            sampling = False
            self._sampling -= 1
            self._waiting += 1
            self._changed.notify()

        try:
            yield sampled
        finally:
            if sampling:
                self._sampling -= 1
            else:
                self._waiting -= 1
            self._changed.notify()
