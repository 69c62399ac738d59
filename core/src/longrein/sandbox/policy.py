"""What an agent may do in a session, as one object that every rollout's record holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attrs import frozen

from longrein.sandbox.base import Sandbox
from longrein.sandbox.limits import SandboxLimits

if TYPE_CHECKING:
    from longrein.config import Config


@frozen
class Budget:
    """What a session may spend, from `[limits]`."""

    timeout_s: float
    idle_s: float
    reply_s: float
    max_calls: int
    max_tokens: int
    max_reply_tokens: int


@frozen
class SandboxPolicy:
    """What an agent may do. It is made from the config alone, so it is the same in `run`, `compare` and `train`."""

    enforced: bool
    """False where the backend is no security boundary: network and folders are then a convention."""
    network: Literal["model", "host"]
    """"model": the model routes of its own key and nothing else; "host": whatever the host reaches."""
    writable: tuple[str, ...]
    """The folders it may write to; they are empty at the start but for the task's files and the agent's config."""
    tools: tuple[str, ...] | None
    """Names of the tools that it may offer to the model; None allows any."""
    limits: SandboxLimits
    budget: Budget

    @classmethod
    def of(cls, config: Config, backend: type[Sandbox]) -> SandboxPolicy:
        """Return the policy of every session that `config` starts in `backend`."""
        spend = config.limits
        return cls(
            enforced=backend.is_security_boundary,
            network="host" if backend.shares_network else "model",
            writable=backend.writable,
            tools=config.sandbox.tools,
            limits=config.sandbox.limits,
            budget=Budget(spend.timeout_s, spend.idle_s, spend.reply_s, spend.max_calls, spend.max_tokens, spend.max_reply_tokens),
        )
