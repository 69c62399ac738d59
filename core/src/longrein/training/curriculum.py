"""Which task a group is of: every part of the mixture goes through its task set, and leaves out what teaches nothing for now."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import asdict, define, field, frozen

from longrein.config import CurriculumConfig
from longrein.model import Task
from longrein.training.mixture import Mixture, Part


@frozen
class Draw:
    """The task of one group."""

    position: int
    """In the training order; a group that gave no row is replaced at its position, with another task."""
    part: Part
    task: Task
    visit: int
    """Passes over the task set before this one: a task that comes again gets other seeds."""


@define
class _Walk:
    """Where a part stands; all that a resumed run needs of it."""

    steps: int = 0
    """Tasks gone by in the shuffled passes."""
    drawn: int = 0
    """Groups drawn."""
    streaks: dict[str, int] = field(factory=dict)
    """Task id to groups in a row that were all solved, or, below zero, not solved at all."""
    wakes: dict[str, int] = field(factory=dict)
    """Task id to the number of drawn groups at which its rest is over."""


class Curriculum:
    """Draws the tasks of groups. What comes depends on the seed, the positions asked for and the results told, on nothing else.

    Every pass of a part shuffles its task set; agents that are asked equally often meet the tasks together. With `skip_after`, a task
    whose last so many groups of the part were solved by all rollouts, or by none, rests: a group without variance gives no row.
    It comes again after as many groups as `revisit` passes have, and rests again at once when nothing has changed. When every
    task rests, the next one comes anyway.

    Args:
        mixture: the part of each position.
        tasks: of all task sets.
        rules: when tasks rest.
        seed: of the order.
        state: what `state` returned, to go on from there.
        again: (position, task id, visit) of what was under way at that time and is made again.
    """

    def __init__(
        self,
        mixture: Mixture,
        tasks: Sequence[Task],
        rules: CurriculumConfig,
        seed: int,
        *,
        state: Mapping[str, Any] | None = None,
        again: Iterable[tuple[int, str, int]] = (),
    ) -> None:
        self.mixture, self._rules, self._seed = mixture, rules, seed
        self._tasks: dict[str, list[Task]] = {}
        for task in tasks:
            self._tasks.setdefault(task.taskset, []).append(task)
        self._by_id = {task.id: task for task in tasks}
        self._walks = {part: _Walk(**(state or {}).get(str(part), {})) for part in mixture.parts}
        self._again = {position: (task_id, visit) for position, task_id, visit in again}
        self._orders: dict[tuple[str, int], list[int]] = {}

    def draw(self, position: int) -> Draw:
        """Return the task for a position, another one each time."""
        part = self.mixture.at(position)
        task_id, visit = self._again.pop(position, ("", 0))
        if task_id in self._by_id and self._by_id[task_id].taskset == part.taskset:
            return Draw(position, part, self._by_id[task_id], visit)
        walk, n = self._walks[part], len(self._tasks[part.taskset])
        ahead = range(walk.steps, walk.steps + 2 * n)  # from the middle of a pass, two hold every task
        step = next((step for step in ahead if walk.wakes.get(self._at(part, step)[0].id, 0) <= walk.drawn), walk.steps)
        walk.steps, walk.drawn = step + 1, walk.drawn + 1
        return Draw(position, part, *self._at(part, step))

    def finished(self, draw: Draw, passed: Iterable[bool | None]) -> None:
        """Note the results of a group; None where a rollout could not be scored."""
        scored = [value for value in passed if value is not None]
        if not self._rules.skip_after or len(scored) < 2:
            return
        walk, key = self._walks[draw.part], draw.task.id
        side = 1 if all(scored) else 0 if any(scored) else -1
        before = walk.streaks.pop(key, 0)
        walk.wakes.pop(key, None)
        if not side:
            return
        walk.streaks[key] = side + (before if before * side > 0 else 0)
        if abs(walk.streaks[key]) >= self._rules.skip_after:
            walk.wakes[key] = walk.drawn + self._rules.revisit * len(self._tasks[draw.part.taskset])

    def resting(self, part: Part) -> tuple[int, int]:
        """Return how many tasks of a part rest, and how many there are."""
        walk = self._walks[part]
        return sum(wakes > walk.drawn for wakes in walk.wakes.values()), len(self._tasks[part.taskset])

    def state(self) -> dict[str, Any]:
        """Return plain data to go on from."""
        return {str(part): asdict(walk) for part, walk in self._walks.items()}

    def _at(self, part: Part, step: int) -> tuple[Task, int]:
        """Return the task at a step of a part's passes, and the number of whole passes before it."""
        tasks = self._tasks[part.taskset]
        visit, index = divmod(step, len(tasks))
        key = (part.taskset, visit)
        if key not in self._orders:
            order = list(range(len(tasks)))
            random.Random(f"{self._seed}/{visit}").shuffle(order)
            self._orders[key] = order
        return tasks[self._orders[key][index]], visit
