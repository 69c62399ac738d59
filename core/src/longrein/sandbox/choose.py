"""Which sandbox a run uses."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from longrein.errors import SandboxError
from longrein.sandbox.base import Sandbox

if TYPE_CHECKING:
    from longrein.config import Config

log = logging.getLogger(__name__)


class KnowsSandboxes(Protocol):
    """The part of the plugin host that `choose` needs."""

    def sandbox(self, name: str) -> type[Sandbox]:
        """Return a registered sandbox class."""
        ...


def choose(config: Config, host: KnowsSandboxes, *, training: bool = False) -> type[Sandbox]:
    """Return the sandbox class for `[sandbox] backend`.

    Args:
        config: the backend is a registered name, or "auto": bubblewrap where it really works, else the supervisor with a warning.
        host: looks names up.
        training: True when the sessions are trained on.

    Raises:
        UnknownNameError: nobody registered the backend.
        SandboxError: the backend asked for does not work here; the message says why and how to mend it.
    """
    backend = config.sandbox.backend
    chosen = host.sandbox("bwrap" if backend == "auto" else backend)
    reason = chosen.unavailable()
    if reason is not None:
        if backend != "auto":
            raise SandboxError(f'sandbox {backend!r} does not work here: {reason}. Or set sandbox.backend = "auto"')
        chosen = host.sandbox("supervisor")
        if (blocked := chosen.unavailable()) is not None:
            raise SandboxError(f"no sandbox works here: {reason}; {blocked}")
    if training and config.policy.url is not None and not chosen.is_security_boundary:
        raise SandboxError(
            f"sandbox {chosen.name!r} is refused for training against [policy] url: an agent could reach {config.policy.url}, whose "
            "routes for weights and pauses have no key. Use bubblewrap" + (f", which does not work here: {reason}" if reason else "")
        )
    if not chosen.is_security_boundary:
        why = f"{reason}; using" if reason else "using"
        log.warning(
            "%s the %s, which ends every process of a session but is no security boundary: agents can read and change what you can",
            why,
            chosen.name,
        )
    return chosen
