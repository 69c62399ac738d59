"""Why a judge gave no score."""

from __future__ import annotations

from typing import Literal

from longrein.errors import LongreinError

Kind = Literal["unreachable", "timeout", "rate_limited", "server_error", "refused", "bad_answer", "capped", "too_long"]


class JudgeError(LongreinError, RuntimeError):
    """The judge gave no usable answer; what it should have scored is unscorable.

    Args:
        kind: what went wrong.
        message: the same for people.
        again: True when another request may help.
        wait_s: how long the endpoint asked to wait before it; None when it did not say.
    """

    def __init__(self, kind: Kind, message: str, *, again: bool = False, wait_s: float | None = None) -> None:
        super().__init__(message)
        self.kind, self.again, self.wait_s = kind, again, wait_s
