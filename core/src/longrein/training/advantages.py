"""Advantages of a group, as TRL's AsyncGRPOTrainer computes them, and the weighting of rollouts that fork."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from attrs import frozen

SAME = 1e-6
"""Rewards closer than this are equal: a rounding difference must not become an advantage of 1."""
EPSILON = 1e-8
BOUNDS = (1 / 8, 8.0)


@frozen
class GroupScore:
    """What a group's rewards say."""

    baseline: float | None
    """Mean over the scored rollouts."""
    std: float | None
    advantages: tuple[float | None, ...]
    """One for each rollout; None where there is no reward. All None when the group is skipped."""
    skipped: str | None = None
    """Why the group gives no update: "too_few_scored" or "no_variance"."""


def score(rewards: Sequence[float | None]) -> GroupScore:
    """Return the advantages (r - mean) / (std + 1e-8) over the rollouts that have a reward.

    The standard deviation is that of the population, and scaling by it is what TRL 1.16's asynchronous worker does
    (trl/experimental/async_grpo/async_rollout_worker.py, `_score_group`); DeepSeekMath (arXiv 2402.03300) eq. 10.

    Args:
        rewards: one for each rollout of the group; None where it could not be scored.
    """
    nothing: tuple[float | None, ...] = (None,) * len(rewards)
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return GroupScore(scored[0] if scored else None, None, nothing, "too_few_scored")
    mean = sum(scored) / len(scored)
    std = math.sqrt(sum((reward - mean) ** 2 for reward in scored) / len(scored))
    if max(scored) - min(scored) < SAME:
        return GroupScore(mean, std, nothing, "no_variance")
    return GroupScore(mean, std, tuple(None if r is None else (r - mean) / (std + EPSILON) for r in rewards))


def rollout_weights(n_trained: Mapping[str, int]) -> dict[str, float]:
    """Return the factor T_mean / T_r for each rollout, bounded to [1/8, 8].

    TRL's loss is a mean over tokens (as in DAPO, arXiv 2503.14476), so a rollout with more trained tokens T_r pulls
    harder. With these factors it becomes (1/G) sum_r (1/T_r) sum_t loss, the mean by sequence of GRPO (DeepSeekMath,
    arXiv 2402.03300, eq. 3), up to the bounds.

    Args:
        n_trained: trained tokens of each rollout that sends rows.
    """
    mean = sum(n_trained.values()) / len(n_trained)
    return {key: min(BOUNDS[1], max(BOUNDS[0], mean / count)) for key, count in n_trained.items()}
