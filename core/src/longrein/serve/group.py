"""The servers that a run starts: one or several of the same policy, each kept running."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from attrs import evolve

from longrein.capture.endpoint import PolicyEndpoint
from longrein.serve.keeper import Keeper
from longrein.serve.process import ServerProcess

Start = Callable[[Path, int], ServerProcess]


class ServerGroup:
    """Starts servers side by side and keeps each running; the group is over when the last one is.

    Args:
        start: starts the server of a number in a folder of its own.
        n_servers: how many.
        runtime: the run's private folder.
        log: takes lines for people.
        over: called once, from some thread, with the reason why no server is left.

    Raises:
        ServeError: one did not start; the others are stopped.
    """

    def __init__(self, start: Start, n_servers: int, runtime: Path, *, log: Callable[[str], None], over: Callable[[str], None]) -> None:
        folders = [runtime / f"p{number}" for number in range(n_servers)]
        for folder in folders:
            folder.mkdir()
        with ThreadPoolExecutor(n_servers) as pool:
            starting = [pool.submit(start, folder, number) for number, folder in enumerate(folders)]
        started = [future.result() for future in starting if future.exception() is None]
        if failed := next((future.exception() for future in starting if future.exception() is not None), None):
            for server in started:
                server.stop()
            raise failed
        self.servers: Sequence[ServerProcess] = started
        self._log, self._over, self._left, self._lock = log, over, len(started), threading.Lock()
        self._keepers = [Keeper(server, log=self._named(number), over=self._lost) for number, server in enumerate(started)]

    @property
    def endpoint(self) -> PolicyEndpoint:
        """The first server, with the others behind it."""
        first, *others = (server.endpoint for server in self.servers)
        return evolve(first, others=tuple(others))

    def stop(self) -> None:
        """End all. Calling it again changes nothing."""
        with ThreadPoolExecutor(len(self._keepers)) as pool:
            list(pool.map(Keeper.stop, self._keepers))

    def _named(self, number: int) -> Callable[[str], None]:
        return self._log if len(self.servers) == 1 else lambda line: self._log(f"server {number + 1}: {line}")

    def _lost(self, reason: str) -> None:
        with self._lock:
            self._left -= 1
            left = self._left
        if left:
            self._log(f"{reason}; {left} of {len(self.servers)} go on")
        else:
            self._over(reason)
