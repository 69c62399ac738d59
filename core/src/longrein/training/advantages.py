"""Advantages of a group, as TRL's AsyncGRPOTrainer computes them, and the weighting of rollouts that fork."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from attrs import evolve, frozen

SAME = 1e-6
"""Rewards closer than this are equal: a rounding difference must not become an advantage of 1."""
EPSILON = 1e-8
BOUNDS = (1 / 8, 8.0)
LAST = 20
"""Groups of an agent whose spread its scale is made from."""


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


class AgentScales:
    """The spread of each agent's rewards within groups, over its last 20 groups with variance.

    With `scale_rewards = "agent"` an advantage is (r - b) / (s_a + 1e-8): b is the group's mean as before, and s_a, one number for each
    agent, is the root of the mean over these groups, this one included, of the mean of (r - b)^2 over the agent's rollouts. So the
    squares of every agent's advantages average about 1, whatever the scale of its rewards, and among the groups of one agent
    those with more spread weigh more. Dividing by the group's own spread instead (DeepSeekMath, arXiv 2402.03300, eq. 10) makes every
    group weigh the same, however little its rewards differ (Dr. GRPO, arXiv 2503.20783, section 3.1).

    Args:
        state: what `state` returned, to go on from there.
    """

    def __init__(self, state: Mapping[str, Sequence[float]] | None = None) -> None:
        self._squares = {agent: deque(values, LAST) for agent, values in (state or {}).items()}

    def scale(self, score: GroupScore, rewards: Sequence[float | None], agents: Sequence[str]) -> tuple[GroupScore, dict[str, float]]:
        """Take a group in and return it with these advantages, and the scale of each of its agents.

        Args:
            score: of a group that is not skipped.
            rewards: as given to `score`.
            agents: of the same rollouts.
        """
        gaps = [None if reward is None or score.baseline is None else reward - score.baseline for reward in rewards]
        for agent in dict.fromkeys(agents):
            mine = [gap**2 for gap, whose in zip(gaps, agents, strict=True) if gap is not None and whose == agent]
            if mine:
                self._squares.setdefault(agent, deque(maxlen=LAST)).append(_mean(mine))
        scales = {agent: math.sqrt(_mean(self._squares[agent])) for agent in dict.fromkeys(agents) if agent in self._squares}
        made = tuple(None if gap is None else gap / (scales[agent] + EPSILON) for gap, agent in zip(gaps, agents, strict=True))
        return evolve(score, advantages=made), scales

    def state(self) -> dict[str, list[float]]:
        """Return plain data to go on from."""
        return {agent: list(values) for agent, values in self._squares.items()}


def _mean(values: Iterable[float]) -> float:
    kept = list(values)
    return math.fsum(kept) / len(kept)


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
