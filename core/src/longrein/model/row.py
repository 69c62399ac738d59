"""A training row: one path of a conversation, with the tokens to train marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import field, frozen


@frozen
class Row:
    """One training sequence. `input_ids`, `mask` and `logprobs` have equal length, checked here once.

    `mask` is 1 exactly at sampled tokens to train; `logprobs` holds the engine's value there and 0.0 elsewhere.
    """

    rollout_id: str
    agent: str
    input_ids: Sequence[int]
    mask: Sequence[int]
    logprobs: Sequence[float] = field()
    version: int
    """The oldest policy version among the trained turns."""
    call_ids: tuple[str, ...] = ()
    """The calls of the path, root first."""

    @logprobs.validator
    def _equal(self, _attribute: Any, value: Sequence[float]) -> None:
        if not len(self.input_ids) == len(self.mask) == len(value):
            raise ValueError(f"a row needs equal lengths: {len(self.input_ids)} ids, {len(self.mask)} mask, {len(value)} logprobs")

    @property
    def n_trained(self) -> int:
        """Number of trained tokens."""
        return sum(self.mask)
