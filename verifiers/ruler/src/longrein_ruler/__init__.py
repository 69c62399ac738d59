"""The reward "ruler": relative scores for a group by an LLM judge, alone or blended with the verifier."""

from __future__ import annotations

from collections.abc import Sequence

from longrein.hookspecs import hookimpl
from longrein.reward import RewardFunction
from longrein_ruler.reward import Ruler


@hookimpl
def longrein_rewards() -> Sequence[type[RewardFunction]]:
    """Register the reward "ruler"."""
    return [Ruler]
