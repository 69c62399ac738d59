"""Where the policy is served."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs
from attrs import asdict, field, frozen

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
    others: tuple[PolicyEndpoint, ...] = ()
    """Further servers of the same policy."""
    kept: bool = False
    """True for a server that the run itself starts again when it dies."""
    level: Level = "tokens"
    """What its replies carry: ids and log-probabilities, log-probabilities only, or text only."""

    def model_at(self, version: int) -> str:
        """Return the name to ask for the policy of a version by."""
        return f"{self.adapter}-v{version}" if self.adapter else self.model

    def plain(self) -> dict[str, Any]:
        """Return it as plain data for another process; without the key, which is never written."""
        values = asdict(self, filter=attrs.filters.exclude("api_key", "others"))
        return {**values, "uds": self.uds and str(self.uds), "others": [other.plain() for other in self.others]}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> PolicyEndpoint:
        """Return what `plain` gave."""
        uds, others = values["uds"], values["others"]
        return cls(**{**values, "uds": Path(uds) if uds else None, "others": tuple(map(cls.from_plain, others))})


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
