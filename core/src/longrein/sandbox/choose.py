"""Which sandbox a run uses."""

from __future__ import annotations

import logging
from typing import Protocol

from longrein.errors import SandboxError
from longrein.sandbox.base import Sandbox

log = logging.getLogger(__name__)


class KnowsSandboxes(Protocol):
    """The part of the plugin host that `choose` needs."""

    def sandbox(self, name: str) -> type[Sandbox]:
        """Return a registered sandbox class."""
        ...


def choose(backend: str, host: KnowsSandboxes) -> type[Sandbox]:
    """Return the sandbox class for `[sandbox] backend`.

    Args:
        backend: a registered name, or "auto": bubblewrap where it really works, else the supervisor with a warning.
        host: looks names up.

    Raises:
        UnknownNameError: nobody registered `backend`.
        SandboxError: the backend asked for does not work here; the message says why and how to mend it.
    """
    chosen = host.sandbox("bwrap" if backend == "auto" else backend)
    reason = chosen.unavailable()
    if reason is None:
        return chosen
    if backend != "auto":
        raise SandboxError(f'sandbox {backend!r} does not work here: {reason}. Or set sandbox.backend = "auto"')
    fallback = host.sandbox("supervisor")
    if (blocked := fallback.unavailable()) is not None:
        raise SandboxError(f"no sandbox works here: {reason}; {blocked}")
    log.warning(
        "%s; using the supervisor, which ends every process of a session but is no security boundary: agents can read "
        "and change what you can",
        reason,
    )
    return fallback
