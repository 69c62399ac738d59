"""The judge's score and the verifier's word, put together."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from longrein.model import Reward

Blend = Literal["verifier_first", "weighted", "judge"]


@frozen
class Blended:
    """A reward's value and its parts, which add up to it."""

    value: float
    parts: dict[str, float]


def blend(how: Blend, weight: float, *, judge: float, verifier: Reward, passed: bool) -> Blended:
    """Return the reward.

    "weighted" is (1 - weight) x verifier + weight x judge. "verifier_first" is the mean of that and 1 for a passed rollout, 0 for
    another: as the verifier's reward is cut to [0, 1], passed rollouts are in [1/2, 1], others in [0, 1/2]. "judge" is the judge's score.

    Args:
        how: one of the three.
        weight: share of the judge, in (0, 1].
        judge: its score in [0, 1].
        verifier: the reward that the rollout had before.
        passed: whether the verifier passed it.
    """
    if how == "judge":
        return _sum(judge=judge)
    given = min(1.0, max(0.0, verifier.value or 0.0))
    if how == "weighted":
        return _sum(verifier=(1 - weight) * given, judge=weight * judge)
    return _sum(passed=passed / 2, verifier=(1 - weight) * given / 2, judge=weight * judge / 2)


def _sum(**parts: float) -> Blended:
    return Blended(sum(parts.values()), parts)
