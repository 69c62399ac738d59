"""Which group comes next, and how many may be under way."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence

from attrs import define, frozen

from longrein.model import Task


@frozen
class Curriculum:
    """The order of groups: every pass shuffles the tasks and asks the agents in turn on each.

    A pure function of the seed, so a position is all that a resumed run needs to know.
    """

    tasks: Sequence[Task]
    agents: Sequence[str]
    seed: int

    def __len__(self) -> int:
        """Groups of one pass."""
        return len(self.tasks) * len(self.agents)

    def passes(self, position: int) -> int:
        """Return how many whole passes lie before a position."""
        return position // len(self)

    def at(self, position: int) -> tuple[Task, str]:
        """Return the task and agent of a position."""
        number, index = divmod(position, len(self))
        order = list(range(len(self.tasks)))
        random.Random(f"{self.seed}/{number}").shuffle(order)
        return self.tasks[order[index // len(self.agents)]], self.agents[index % len(self.agents)]

    def positions(self, start: int, done: Collection[int]) -> Iterator[int]:
        """Yield positions from `start` on, without those already done."""
        skip, position = set(done), start
        while True:
            if position not in skip:
                yield position
            position += 1


@define
class LookAhead:
    """How far rollouts may run ahead of the trainer.

    The n-th row that is handed over is trained in step n // rows_per_step, at version `first_version` + that step. A
    group may start while that lies at most `max_staleness` ahead of the live version, which keeps
    max_staleness + 1 >= 2 optimizer batches under way: accelerate's dispatcher wants batch k+1 before step k runs.
    """

    rows_per_step: int
    max_staleness: int
    first_version: int
    """Version at the loss of the first step of this process."""
    steps: int
    """Steps that this process will make."""
    version: int = 0
    rows: int = 0
    """Rows sent and not dropped."""
    expected: int = 0
    """Rows that groups under way are expected to give, one for each rollout."""

    def may_start(self) -> bool:
        """True when one more group can be used by the time it is trained."""
        step = (self.rows + self.expected) // self.rows_per_step
        return step < self.steps and self.first_version + step - self.version <= self.max_staleness
