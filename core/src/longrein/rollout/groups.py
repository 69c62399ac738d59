"""Groups of rollouts: gathered while they are made, and as groups.jsonl has them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from longrein.model import Group, Rollout
from longrein.rollout.serialize import plain
from longrein.rollout.spec import RolloutSpec


class Gathering:
    """Puts rollouts together that share a group; groups of one are left out.

    Args:
        specs: every rollout that will be made.
    """

    def __init__(self, specs: Iterable[RolloutSpec]) -> None:
        self._sizes = Counter(spec.group_id for spec in specs)
        self._made: dict[str, list[Rollout]] = defaultdict(list)

    def add(self, rollout: Rollout) -> Group | None:
        """Return the rollout's group when it is the last of two or more."""
        size = self._sizes[rollout.group_id]
        if size < 2:
            return None
        made = self._made[rollout.group_id]
        made.append(rollout)
        if len(made) < size:
            return None
        members = tuple(sorted(self._made.pop(rollout.group_id), key=lambda member: member.sample))
        return Group(rollout.group_id, rollout.agent, rollout.taskset, rollout.task_id, members)


def group_line(made: Group, scored: Group) -> dict[str, Any]:
    """Return what groups.jsonl has of every group.

    Args:
        made: with the rewards that each rollout got by itself.
        scored: the same rollouts with their final rewards.
    """
    pairs = list(zip(made.rollouts, scored.rollouts, strict=True))
    found = [finding for old, new in pairs for finding in new.session.findings[len(old.session.findings) :]]
    return {
        "id": scored.id,
        "agent": scored.agent,
        "taskset": scored.taskset,
        "task_id": scored.task_id,
        "rewards": {r.id: r.reward.value for r in scored.rollouts},
        "outcomes": {r.id: r.outcome.kind for r in scored.rollouts},
        "statuses": {r.id: r.verdict.status for r in scored.rollouts},
        "compared": {new.id: plain(new.reward) for old, new in pairs if new.reward != old.reward},
        "findings": plain(found),
    }
