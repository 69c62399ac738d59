"""A control: rewards change places inside each group, so that nothing can be learned from them.

Name it in a config: `[plugins] use = ["./permuted_rewards.py"]`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from attrs import evolve

import longrein
from longrein.model import Group, Reward


@longrein.hookimpl
def longrein_score_group(group: Group, rewards: Mapping[str, Reward]) -> Mapping[str, Reward]:
    """Return the group's rewards in an order drawn from its id; rollouts without a reward keep none."""
    ids = [rollout.id for rollout in group.rollouts if rewards[rollout.id].value is not None]
    shuffled = ids.copy()
    random.Random(group.id).shuffle(shuffled)
    moved = {to: evolve(rewards[source], reason=f"reward of {source}") for to, source in zip(ids, shuffled, strict=True)}
    return {**rewards, **moved}
