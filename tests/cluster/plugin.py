"""A plugin file for the tests on a cluster: a task set that notes who asks for its hidden data, and a reward that varies."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

import longrein
from longrein.model import Reward, Rollout, Task, TaskRef
from longrein.reward import RewardFunction
from longrein.verifier import TaskSet

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from toy import Doubling  # type: ignore[import-not-found]


@frozen
class Notes:
    """`file` takes a line for each look at hidden data."""

    file: str = ""


class Noting(Doubling):  # type: ignore[misc]
    """The toy tasks."""

    name = "noting"
    Options = Notes

    def tasks(self) -> Iterator[Task]:
        """Yield the toy tasks as this set's own."""
        for task in super().tasks():
            yield evolve(task, ref=TaskRef(self.name, task.id, {"file": self.options.file}))

    def hidden(self, task_id: str) -> Any:
        """Note the name of the process that asks."""
        with Path(self.options.file).open("a") as notes:
            notes.write(Path("/proc/self/cmdline").read_text().partition("\0")[0] + "\n")
        return super().hidden(task_id)


class Parity(RewardFunction):
    """1.0 for replies whose ids have an even sum: as good as a coin for a random model."""

    name = "parity"

    def compute(self, rollout: Rollout) -> Reward:
        """Return 1.0 or 0.0."""
        return Reward(float(sum(sum(turn.call.sampled_ids) for turn in rollout.trajectory) % 2 == 0))


@longrein.hookimpl
def longrein_tasksets() -> list[type[TaskSet]]:
    """Register the task set."""
    return [Noting]


@longrein.hookimpl
def longrein_rewards() -> list[type[RewardFunction]]:
    """Register the reward."""
    return [Parity]
