"""Checks on what an engine returned, made once where it enters."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

_ABOVE_ONE = 1e-4
"""Log-probabilities may round to slightly above 0, never by more than this."""


def problem_of(prompt_ids: Any, sampled_ids: Any, logprobs: Any, n_reported: int | None) -> str | None:
    """Return why a reply cannot be trained, with both numbers, or None when it is sound.

    Args:
        prompt_ids, sampled_ids, logprobs: as the engine gave them; anything may come.
        n_reported: `usage.completion_tokens`.
    """
    if not _is_ids(prompt_ids) or not prompt_ids:
        return f"the reply has no prompt token ids (0 ids, usage reports {n_reported} sampled tokens)"
    if not _is_ids(sampled_ids):
        return f"the reply's token ids are not integers (usage reports {n_reported} sampled tokens)"
    if n_reported is not None and len(sampled_ids) < n_reported:
        return f"{len(sampled_ids)} sampled ids, but usage.completion_tokens is {n_reported}"
    if len(sampled_ids) != len(logprobs):
        return f"{len(sampled_ids)} sampled ids, but {len(logprobs)} log-probabilities"
    return _value_problem(logprobs)


def _value_problem(logprobs: Sequence[Any]) -> str | None:
    for position, value in enumerate(logprobs):
        where = f"log-probability {position} of {len(logprobs)}"
        if not _is_number(value):
            return f"{where} is {value!r}"
        if not math.isfinite(value):
            return f"{where} is {value}"
        if value > _ABOVE_ONE:
            return f"{where} is {value}, above {_ABOVE_ONE}"
    return None


def finite(logprobs: Sequence[Any]) -> tuple[float, ...]:
    """Return the values, or nothing when one of them is no finite number: records hold numbers only."""
    sound = all(_is_number(value) and math.isfinite(value) for value in logprobs)
    return tuple(float(value) for value in logprobs) if sound else ()


def ids_of(value: Any) -> list[int]:
    """Return a list of token ids, or an empty one for anything else."""
    return value if _is_ids(value) else []


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 2**31 for item in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
