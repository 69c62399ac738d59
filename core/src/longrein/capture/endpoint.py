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
    adapter: str | None = None
    """Where versions of the policy are LoRA adapters: the name before "-v" and the version, by which a request asks for one."""
    kept: bool = False
    """True for a server that the run itself starts again when it dies."""
    level: Level = "tokens"
    """What its replies carry: ids and log-probabilities, log-probabilities only, or text only."""

    def model_at(self, version: int) -> str:
        """Return the name to ask for the policy of a version by."""
        return f"{self.adapter}-v{version}" if self.adapter else self.model


def answers(endpoint: PolicyEndpoint) -> bool:
    """Return whether something answers at an endpoint; takes at most 10 s."""
    import httpx

    transport = httpx.HTTPTransport(uds=str(endpoint.uds)) if endpoint.uds else None
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    try:
        with httpx.Client(transport=transport, timeout=10, headers=headers, trust_env=False) as client:
            client.get(f"{endpoint.url.rstrip('/')}/models")
            return True
    except httpx.HTTPError:
        return False
