"""Keeps a policy server running: one that dies is started again, a bounded number of times."""

from __future__ import annotations

import threading
from collections.abc import Callable

from longrein.errors import ServeError
from longrein.serve.process import ServerProcess, how_ended

RESTARTS = 3
"""How often a run's server is started again. Requests wait meanwhile (see `EngineClient`)."""


class Keeper:
    """Watches a server from a thread.

    Args:
        server: a running server; stopped by `stop`.
        log: takes lines for people.
        over: called once, from the thread, with the reason why the server is not started again.
    """

    def __init__(self, server: ServerProcess, *, log: Callable[[str], None], over: Callable[[str], None]) -> None:
        self._server, self._log, self._over = server, log, over
        self._thread = threading.Thread(target=self._watch, name="server keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the server and the watch. Calling it again changes nothing."""
        self._server.stop()
        self._thread.join()

    def _watch(self) -> None:
        for n_before in range(RESTARTS + 1):
            code = self._server.wait()
            if code is None:
                return
            how = how_ended(code)
            if n_before == RESTARTS:
                self._over(f"the policy server {how}, after {RESTARTS} restarts")
                return
            self._log(f"the policy server {how}; starting it again")
            try:
                self._server.restart()
            except ServeError as error:
                if self._server.wait() is not None:
                    self._over(f"the policy server {how}; {error}")
                return
