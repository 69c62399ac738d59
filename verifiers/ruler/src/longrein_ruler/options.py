"""Options of the reward "ruler"."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import Attribute, field, frozen, validators

OWN = ("model", "messages", "response_format", "stream", "n")
"""Keys of the request that are not for `request`."""
at_least_0: Any = validators.ge(0)
above_0: Any = validators.gt(0)


def _http(_instance: Any, _attribute: Attribute[Any], value: str) -> None:
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"url must begin with http:// or https:// and end in /v1, got {value!r}")


def _not_own(_instance: Any, _attribute: Attribute[Any], value: Mapping[str, Any]) -> None:
    if taken := [key for key in value if key in OWN]:
        raise ValueError(f"request cannot hold {', '.join(taken)}: ruler sets it itself")


@frozen
class RulerOptions:
    """[reward.options] of `name = "ruler"`."""

    url: str = field(validator=_http)
    """An OpenAI-compatible endpoint, ending in /v1."""
    model: str
    api_key_env: str | None = None
    """Name of the environment variable that holds the endpoint's key."""
    mode: Literal["relative", "absolute"] = "relative"
    """"relative" scores a group's rollouts against one another, "absolute" each by itself."""
    blend: Literal["verifier_first", "weighted", "judge"] = "verifier_first"
    verifier: Literal["binary", "fraction", "shaped"] = "binary"
    """The reward that the judge's score is blended with."""
    weight: float = field(default=0.5, validator=validators.and_(above_0, validators.le(1)))
    """Share of the judge."""
    rubric: Path | None = None
    """A text file; without it the one that comes with ruler for this mode."""
    passes: Literal[1, 2] = 1
    """With 2 the judge scores each group again in the opposite order; the mean counts."""
    seed: int = 0
    """Of the order in which the judge sees rollouts."""
    prompt_tokens: int = field(default=24_000, validator=validators.ge(2_000))
    """Longest prompt, a token counted as three bytes; longer traces are digested."""
    timeout_s: float = field(default=120.0, validator=above_0)
    """For one request."""
    retries: int = field(default=3, validator=at_least_0)
    """Further requests after an answer that cannot be used, or none."""
    max_wait_s: float = field(default=60.0, validator=at_least_0)
    """Longest wait before a further request."""
    max_calls: int | None = field(default=None, validator=validators.optional(at_least_0))
    """Requests that `cache` may see in all."""
    max_cost: float | None = field(default=None, validator=validators.optional(at_least_0))
    """What `cache` may cost in all, in the currency of the prices."""
    price_in: float = field(default=0.0, validator=at_least_0)
    """Of a million prompt tokens."""
    price_out: float = field(default=0.0, validator=at_least_0)
    """Of a million sampled tokens."""
    cache: Path = Path("runs/ruler")
    """Folder of the answers that were paid for, and of what they cost."""
    request: Mapping[str, Any] = field(factory=dict, validator=_not_own)
    """Further keys of each request, such as `temperature`."""

    def __attrs_post_init__(self) -> None:
        """Refuse what does not go together."""
        if self.passes == 2 and self.mode == "absolute":
            raise ValueError('passes = 2 shows a group in another order; mode = "absolute" shows one rollout')
        if self.max_cost is not None and not self.price_in and not self.price_out:
            raise ValueError("max_cost needs price_in and price_out, the prices of a million tokens")
