"""Where the policy is served."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from attrs import field, frozen

Level = Literal["tokens", "logprobs", "text"]


@frozen
class PolicyEndpoint:
    """An OpenAI-compatible endpoint of the policy."""

    url: str
    """The API root, ending in /v1; with `uds` set the host is a mere name ("http://policy/v1")."""
    model: str
    """The served name, sent upstream whatever name the agent uses."""
    uds: Path | None = None
    """A unix socket to reach it through."""
    api_key: str | None = field(default=None, repr=False)
    max_model_len: int | None = None
    """Longest prompt and reply together, in tokens."""
    level: Level = "tokens"
    """What its replies carry: ids and log-probabilities, log-probabilities only, or text only."""
