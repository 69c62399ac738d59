"""One agent session as capture sees it: its key, its calls and what it may still spend."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from attrs import define, field

from longrein.capture.trace import Trace
from longrein.model import ModelCall

GRACE_S = 10.0
GRACE_CALLS = 3
_RATE_PER_S = 20.0
_BURST = 60.0


class CaptureSession:
    """The calls of one agent process. Made by `CaptureServer.open_session`, ended by `close`.

    Attributes:
        key: the agent's API key, a secret; never written anywhere.
        pending: requests that the engine is answering now.
        last_activity: `time.monotonic()` of the last request or reply.
        budget_stop: why the session gets no further calls, or None.
        stale: why its weights became too old to be trained, or None.
        over: set 10 s or 3 calls after the first such stop, or when it is stale; the agent is then to be ended.
        n_replies, n_errors: calls that the engine answered, and calls it did not.
        last_error: what the last unanswered call got instead of a reply.
        context_overflow: True once a prompt was longer than the model allows.
        n_open_bytes: bytes of the requests that are being read or answered.
    """

    def __init__(
        self, *, max_calls: int, max_tokens: int, seed: int, max_staleness: int | None, on_close: Callable[[CaptureSession], None]
    ) -> None:
        self.key = "lr-" + secrets.token_urlsafe(24)
        self.seed = seed
        self.trace = Trace()
        self.pending = self.n_replies = self.n_errors = 0
        self.began = self.last_activity = time.monotonic()
        self.budget_stop: str | None = None
        self.stale: str | None = None
        self.over = asyncio.Event()
        self.last_error: str | None = None
        self.context_overflow = False
        self.exchanges: dict[asyncio.Task[None], Exchange] = {}
        self.n_open_bytes = 0
        self._max_calls, self._max_tokens, self._max_staleness = max_calls, max_tokens, max_staleness
        self._n_calls = self._n_stops = self._n_sampled = 0
        self._allowance, self._allowed_at = _BURST, self.began
        self._timer: asyncio.TimerHandle | None = None
        self._on_close = on_close

    @property
    def calls(self) -> list[ModelCall]:
        """The calls that have ended, in order of arrival, as deltas."""
        return self.trace.calls

    @property
    def tools(self) -> dict[str, list[Any]]:
        """Tool manifests by key."""
        return self.trace.tools

    @property
    def tokens_left(self) -> int:
        """Tokens that the session may still sample."""
        return max(0, self._max_tokens - self._n_sampled)

    def allow(self) -> bool:
        """Return False when requests come faster than any agent that works sends them."""
        now = time.monotonic()
        self._allowance = min(_BURST, self._allowance + (now - self._allowed_at) * _RATE_PER_S)
        self._allowed_at = now
        if self._allowance < 1:
            return False
        self._allowance -= 1
        return True

    def take_call(self) -> int | None:
        """Reserve the next call and return its index; None when a budget is used up."""
        if self._n_calls >= self._max_calls:
            self._stop(f"all {self._max_calls} model calls of the session are used up")
        elif self.tokens_left == 0:
            self._stop(f"all {self._max_tokens} sampled tokens of the session are used up")
        else:
            self._n_calls += 1
            return self._n_calls - 1
        return None

    def count_reply(self, n_sampled: int) -> None:
        """Note an answered call and the tokens it cost."""
        self.n_replies += 1
        self._n_sampled += n_sampled
        self.last_activity = time.monotonic()

    def count_error(self, error: str) -> None:
        """Note a call without a reply."""
        self.n_errors += 1
        self.last_error = error
        self.last_activity = time.monotonic()

    def weights_moved(self, version: int) -> None:
        """Note the version that is live now: a session whose first reply is too many versions old cannot be trained any more."""
        first = next((call.version_first for call in self.calls if call.error is None), None)
        if self._max_staleness is not None and first is not None and version - first > self._max_staleness:
            self.stale = f"the policy went from version {first} to {version} while it ran ([train] max_staleness {self._max_staleness})"
            self.over.set()

    def close(self) -> None:
        """End the session: its key is dead, its open requests are cancelled and recorded as such. Its calls stay readable."""
        self._on_close(self)
        for task, exchange in self.exchanges.items():
            exchange.leave("cancelled: the session was closed")
            task.cancel()
        if self._timer:
            self._timer.cancel()

    def _stop(self, reason: str) -> None:
        self._n_stops += 1
        if self.budget_stop is None:
            self.budget_stop = reason
            self._timer = asyncio.get_running_loop().call_later(GRACE_S, self.over.set)
        elif self._n_stops > GRACE_CALLS:
            self.over.set()

    def __repr__(self) -> str:
        return f"<CaptureSession of {len(self.calls)} calls>"


@define(eq=False)
class Exchange:
    """One HTTP request of an agent on its way through capture."""

    session: CaptureSession
    dialect: str
    index: int | None = None
    """The call it became; None for requests that are no model call."""
    give_up: Callable[[str], None] | None = None
    """Records the call as one without a reply, for a reason; set while the engine is asked."""
    answered: bool = False
    """The whole answer is on its way to the client."""
    gone: bool = False
    """The client went away before that."""
    n_bytes: int = 0
    """Bytes of the request read so far."""
    started: float = field(factory=time.monotonic)

    def leave(self, why: str) -> None:
        """Note that the client will not get the reply."""
        if self.give_up is not None:
            self.give_up(why)
        elif self.index is not None and not self.answered:
            self.session.trace.undelivered(self.index)


EXCHANGE: ContextVar[Exchange] = ContextVar("longrein_exchange")
