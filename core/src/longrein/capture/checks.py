"""What an engine returned, read and checked once where it enters. Nothing in a reply is taken for granted."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from attrs import frozen

from longrein.model import Usage

_ABOVE_ONE = 1e-4
"""Log-probabilities may round to slightly above 0, never by more than this."""


@frozen
class Sampled:
    """The tokens of a reply, and why they cannot be trained (None when they can)."""

    prompt_ids: list[int]
    sampled_ids: list[int]
    logprobs: tuple[float, ...]
    usage: Usage
    versions: Mapping[str, int]
    """`version_first` and `version_last`, where the engine says which policy answered."""
    problem: str | None


def read_tokens(reply: Mapping[str, Any]) -> Sampled:
    """Read a chat completion; what has the wrong form counts as missing."""
    choice = reply["choices"][0]
    usage = _mapping(reply.get("usage"))
    counts = Usage(_count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens")))
    entries = _mapping(choice.get("logprobs")).get("content")
    values = [_mapping(entry).get("logprob") for entry in entries] if isinstance(entries, list) else []
    prompt_ids, sampled_ids = _ids(reply.get("prompt_token_ids")), _ids(choice.get("token_ids"))
    sound = tuple(value for value in values if _is_finite(value))
    versions = {
        key: value
        for key, value in _mapping(reply.get("longrein")).items()
        if key in ("version_first", "version_last") and _count(value) is not None
    }
    return Sampled(
        prompt_ids,
        sampled_ids,
        sound if len(sound) == len(values) else (),
        counts,
        versions,
        problem_of(prompt_ids, sampled_ids, values, counts.completion_tokens),
    )


def problem_of(prompt_ids: Sequence[int], sampled_ids: Sequence[int], logprobs: Sequence[Any], n_reported: int | None) -> str | None:
    """Return why a reply cannot be trained, with both numbers, or None when it is sound.

    Args:
        prompt_ids, sampled_ids: as the engine gave them; empty when it gave none.
        logprobs: one value for each sampled id; anything may come.
        n_reported: `usage.completion_tokens`.
    """
    if not prompt_ids:
        return f"0 prompt ids returned, {n_reported} sampled tokens reported"
    if not sampled_ids and n_reported is None:
        return "0 sampled ids returned, and the reply reports no usage"
    if n_reported is not None and len(sampled_ids) < n_reported:
        return f"{len(sampled_ids)} sampled ids returned, {n_reported} reported as usage.completion_tokens"
    if len(sampled_ids) != len(logprobs):
        return f"{len(sampled_ids)} sampled ids, {len(logprobs)} log-probabilities"
    for position, value in enumerate(logprobs):
        if not _is_finite(value) or value > _ABOVE_ONE:
            return f"{len(sampled_ids)} sampled ids, {len(logprobs)} log-probabilities, of which number {position} is {value!r}"
    return None


def has_logprobs(reply: Mapping[str, Any]) -> bool:
    """True when a reply carries at least one log-probability."""
    return bool(_mapping(reply["choices"][0].get("logprobs")).get("content"))


def _ids(value: Any) -> list[int]:
    # Built-ins only: a prompt may have 100,000 ids, on every call.
    sound = isinstance(value, list) and set(map(type, value)) == {int} and min(value) >= 0 and max(value) < 2**31
    return value if sound else []


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
