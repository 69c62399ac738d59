"""What servers and TRL classes have in common: an environment that can be reset, and a reward that becomes a verdict."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from longrein.environment import Environment
from longrein.errors import EnvironmentFailed
from longrein.model import Verdict


class Episode(Environment):
    """An environment whose `reset` begins a new episode."""

    sound: bool = True
    """False while a call is under way, and for good once one was given up: nobody knows what state it left."""

    @abstractmethod
    async def reset(self, row: Mapping[str, Any]) -> str:
        """Begin the episode of a task and return the first observation as text.

        Args:
            row: what `reset` takes.
        """

    def must_be_sound(self) -> None:
        """Raise where the session ended within a call.

        Raises:
            EnvironmentFailed: it did.
        """
        if not self.sound:
            raise EnvironmentFailed("the session ended while the environment was at work on a call, so its reward would mean nothing")

    async def close(self) -> None:
        """Give the connection back."""


def verdict_of(reward: Any, reward_range: Sequence[float], **details: Any) -> Verdict:
    """Return the verdict that a reward means.

    Raises:
        EnvironmentFailed: it is no number within `reward_range`.
    """
    low, high = reward_range
    if not isinstance(reward, bool | int | float) or not math.isfinite(reward):
        raise EnvironmentFailed(f"the environment gave the reward {reward!r:.200}, which is no number")
    if not low <= reward <= high:
        raise EnvironmentFailed(f"the reward {reward:g} is outside reward_range = [{low:g}, {high:g}]; set it in [taskset.options]")
    score = (float(reward) - low) / (high - low)
    return Verdict("passed" if reward == high else "failed", score, details={"reward": float(reward), **details})
