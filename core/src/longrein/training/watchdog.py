"""Names what a run hangs on within a minute, and what to change; ends the run when the policy server is gone for good."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

NAMED_AFTER_S = 40.0
GONE_AFTER_S = 180.0
"""A server that has not answered for so long is not coming back: sessions wait 120 s for one that is started again."""
LOOK_S = 5.0
AGAIN = 4.0
"""What still hangs is named again when it has lasted so many times as long."""
SYNC, ROWS = "the weight sync", "the trainer's wait for rows"
FULL, SERVER = "the rows' wait for the trainer", "the policy server's silence"
HINTS: Mapping[str, str] = {
    SYNC: (
        "a pause waits for the replies under way: lower [limits] max_reply_tokens, or see server.log for a server that is stuck; it is "
        "given up after [train] sync_timeout_s"
    ),
    ROWS: (
        "sessions are slower than training, or their groups have no variance: see rollouts.jsonl and groups.jsonl for what comes in; more "
        "[limits] sessions, a shorter [limits] timeout_s or easier tasks give more rows"
    ),
    FULL: (
        "training is slower than sessions, so rows are as old as [train] max_staleness lets them be; fewer [limits] sessions cost nothing, "
        "a lower max_staleness gives fresher rows, and more training processes or a smaller model make steps faster"
    ),
    SERVER: "see server.log; a server that is too busy to answer needs fewer [limits] sessions",
}


class Rows(Protocol):
    """What the watchdog looks at of the row buffer."""

    waiting_since: float | None

    @property
    def full(self) -> bool:
        """True while two more steps could be made with the rows that wait."""
        ...


class Watchdog:
    """Looks every few seconds, from a thread of its own.

    Args:
        healthy: asks the policy server for a sign of life; may block for seconds.
        rows: the row buffer.
        log: takes lines for people.
        over: called with the reason when the run cannot go on.
        now: the clock, in seconds.
    """

    def __init__(
        self,
        *,
        healthy: Callable[[], bool],
        rows: Rows,
        log: Callable[[str], None],
        over: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._healthy, self._rows, self._log, self._over, self._now = healthy, rows, log, over, now
        self.sync_since: float | None = None
        """When the weight sync under way began; None between syncs. Set by the trainer's callback."""
        self._answered = now()
        self._full_since: float | None = None
        self._named: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch. Calling it again changes nothing."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=LOOK_S)

    def look(self) -> None:
        """Look once."""
        now = self._now()
        if self._healthy():
            self._answered = self._now()
        self._full_since = (self._full_since or now) if self._rows.full else None
        lasting = {SYNC: self.sync_since, ROWS: self._rows.waiting_since, FULL: self._full_since, SERVER: self._answered}
        for what, since in lasting.items():
            self._name(what, since, now)
        if now - self._answered > GONE_AFTER_S and not self._stop.is_set():
            self._over(f"the policy server has not answered for {now - self._answered:.0f} s; {HINTS[SERVER]}")

    def _name(self, what: str, since: float | None, now: float) -> None:
        lasted = 0.0 if since is None else now - since
        if lasted < NAMED_AFTER_S:
            if what not in (ROWS, FULL):  # they last in every step of such a run: said again only when it gets worse
                self._named.pop(what, None)
        elif lasted >= self._named.get(what, NAMED_AFTER_S):
            self._named[what] = lasted * AGAIN
            self._log(f"{what} has lasted {lasted:.0f} s: {HINTS[what]}")

    def _watch(self) -> None:
        while not self._stop.wait(LOOK_S):
            self.look()
