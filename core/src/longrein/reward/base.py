"""What a reward is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from typing import Any, ClassVar

from longrein.model import Group, Reward, Rollout
from longrein.options import NoOptions


class RewardFunction(ABC):
    """Computes a rollout's reward from its verdict, outcome and actions."""

    name: ClassVar[str]
    Options: ClassVar[type] = NoOptions

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    @abstractmethod
    def compute(self, rollout: Rollout) -> Reward | Awaitable[Reward]:
        """Return the reward; `Reward(None, reason=...)` when the rollout cannot be scored.

        May be a coroutine function; a plain function runs in a thread.
        """

    def score_group(
        self, group: Group, rewards: Mapping[str, Reward]
    ) -> Mapping[str, Reward] | Awaitable[Mapping[str, Reward] | None] | None:
        """Return a reward for every rollout id of `group`, or None to keep `rewards`; for rewards that compare rollouts.

        Asked before the hook `longrein_score_group`, under the same rules. May be a coroutine function; a plain function runs in a thread.
        """
        return None
