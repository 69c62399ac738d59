"""The default rewards. Every value is the sum of its named parts."""

from __future__ import annotations

from longrein.model import Reward, Rollout
from longrein.reward.base import RewardFunction

NO_RUN = 0.1
"""Cost of a session that never ran anything."""
FREE_ACTIONS, PER_ACTION, MOST = 20, 0.03, 0.5
"""Each action after the free ones costs `PER_ACTION`, all together `MOST` at most."""


class Binary(RewardFunction):
    """1.0 when every graded case passes, else 0.0."""

    name = "binary"

    def compute(self, rollout: Rollout) -> Reward:
        """Return 1.0 or 0.0; None when unscorable."""
        return _sum(rollout, passed=float(rollout.verdict.status == "passed"))


class Fraction(RewardFunction):
    """The verdict's score: the share of graded cases that pass."""

    name = "fraction"

    def compute(self, rollout: Rollout) -> Reward:
        """Return the score in [0, 1]; None when unscorable."""
        return _sum(rollout, score=rollout.verdict.score or 0.0)


class Shaped(RewardFunction):
    """Passing counts as in `binary`, unless the session timed out; not running anything and many actions cost."""

    name = "shaped"

    def compute(self, rollout: Rollout) -> Reward:
        """Return passed - 0.1 if nothing was run - min(0.5, 0.03 x max(0, actions - 20)), in [-0.6, 1]; None when unscorable."""
        passed = rollout.verdict.status == "passed" and rollout.outcome.kind != "timeout"
        ran = any(action.kind == "run" for action in rollout.actions)
        extra = max(0, len(rollout.actions) - FREE_ACTIONS)
        return _sum(rollout, passed=float(passed), no_run=0.0 if ran else -NO_RUN, actions=0.0 - min(MOST, PER_ACTION * extra))


def _sum(rollout: Rollout, **parts: float) -> Reward:
    if rollout.verdict.score is None:
        return Reward(None, reason=rollout.verdict.reason)
    return Reward(sum(parts.values()), parts)
