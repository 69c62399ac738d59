"""One captured model call, stored as a delta to the call it continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen


@frozen
class Usage:
    """Token counts as the engine reported them; None where it reported none."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None


@frozen
class ModelCall:
    """One request of an agent and the engine's reply.

    `context_ids` are the prompt's tokens after the parent's end (parent prompt + parent sample), the whole prompt
    for a root. `sampled_ids` and `logprobs` have equal length unless `problem` says otherwise.
    """

    id: str
    index: int
    """Order of arrival within the session, from 0."""
    parent_id: str | None
    """The call whose prompt and sample are the longest exact token prefix of this prompt."""
    context_ids: Sequence[int]
    prompt_len: int
    """Tokens of the whole prompt."""
    sampled_ids: Sequence[int]
    logprobs: Sequence[float]
    """Natural log of the probability under the sampling policy, one for each sampled id."""
    usage: Usage = Usage()
    messages_base: str | None = None
    """The call whose request messages this request repeats, or None."""
    messages_kept: int = 0
    """How many leading messages of `messages_base` are repeated."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """The request's further messages (chat form)."""
    tools_key: str | None = None
    """Key into `Trajectory.tools`, or None for a request without tools."""
    reply: Mapping[str, Any] = field(factory=dict)
    """The assistant message returned (chat form)."""
    finish_reason: str | None = None
    dialect: str = "chat"
    requested_sampling: Mapping[str, Any] = field(factory=dict)
    """What the agent asked for; the training policy replaced it."""
    max_tokens: int | None = None
    version_first: int = 0
    """Policy version when the engine began to answer."""
    version_last: int = 0
    """Policy version when the reply was complete."""
    started_s: float = 0.0
    """Seconds since the session began."""
    ended_s: float = 0.0
    delivered: bool = True
    """False when the client had gone before the reply could be handed over."""
    error: str | None = None
    """Set when the engine returned no reply; such a call has no sampled ids."""
    problem: str | None = None
    """Why this capture cannot be trained (both numbers in it); None when sound."""
