"""A reward with steps, for policies that rarely solve a task: an edit counts, a program that runs counts more, then each case passed.

Name it in a config: `[plugins] use = ["./stepped_reward.py"]` and `[reward] name = "stepped"`.
"""

from __future__ import annotations

import longrein
from longrein.model import Reward, Rollout
from longrein.reward import RewardFunction

EDITED, RAN, CASES = 0.2, 0.2, 0.6
BROKEN = ("compile_error", "no_solution", "runtime_error", "timeout", "memory_limit", "output_limit")


class Stepped(RewardFunction):
    """0.2 for a solution that is there, 0.2 for one that runs to its end in every case, 0.6 times the share of cases passed."""

    name = "stepped"

    def compute(self, rollout: Rollout) -> Reward:
        """Return a value in [0, 1]; None when the rollout cannot be scored."""
        verdict = rollout.verdict
        if verdict.score is None:
            return Reward(None, reason=verdict.reason)
        statuses = [case.status for case in verdict.cases]
        edited = bool(statuses) and "no_solution" not in statuses
        ran = edited and not any(status in BROKEN for status in statuses)
        parts = {"edited": EDITED * edited, "ran": RAN * ran, "cases": CASES * verdict.score}
        return Reward(sum(parts.values()), parts)


@longrein.hookimpl
def longrein_rewards() -> list[type[RewardFunction]]:
    """Register the reward."""
    return [Stepped]
