"""A reward with steps, for policies that rarely solve a task: Aider's edit format first, then a program that runs, then each case.

Name it in a config: `[plugins] use = ["./stepped_reward.py"]` and `[reward] name = "stepped"`.
"""

from __future__ import annotations

import re

import longrein
from longrein.model import Reward, Rollout
from longrein.reward import RewardFunction

FENCED, NAMED, EDITED, RAN, CASES = 0.1, 0.1, 0.2, 0.2, 0.4
BLOCK = re.compile(r"^```\w*$.*?^```$", re.MULTILINE | re.DOTALL)
LISTING = re.compile(r"^\W*solution\.py\W*\n```", re.MULTILINE)
BROKEN = ("compile_error", "no_solution", "runtime_error", "timeout", "memory_limit", "output_limit")


class Stepped(RewardFunction):
    """A code block, one headed by the file's name, a solution that is there, one that runs in every case, the share of cases passed."""

    name = "stepped"

    def compute(self, rollout: Rollout) -> Reward:
        """Return a value in [0, 1]; None when the rollout cannot be scored."""
        verdict = rollout.verdict
        if verdict.score is None:
            return Reward(None, reason=verdict.reason)
        replies = "\n".join(str(turn.call.reply.get("content") or "") for turn in rollout.trajectory)
        statuses = [case.status for case in verdict.cases]
        edited = bool(statuses) and "no_solution" not in statuses
        ran = edited and not any(status in BROKEN for status in statuses)
        parts = {
            "fenced": FENCED * bool(edited or BLOCK.search(replies)),
            "named": NAMED * bool(edited or LISTING.search(replies)),
            "edited": EDITED * edited,
            "ran": RAN * ran,
            "cases": CASES * verdict.score,
        }
        return Reward(sum(parts.values()), parts)


@longrein.hookimpl
def longrein_rewards() -> list[type[RewardFunction]]:
    """Register the reward."""
    return [Stepped]
