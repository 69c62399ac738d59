"""What is trained, in proportion: which agent and task set each group is of, and the order in which groups leave."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Generic, TypeVar

from attrs import frozen

T = TypeVar("T")

WINDOW = 8
"""A finished group may leave when it is one of so many positions, from the first that has not left on."""
SPAN, WITHIN = 20, 2
"""Over any so many trained groups, shares hold within so many groups."""
SAME = 1e-9


@frozen
class Part:
    """One agent on one task set."""

    agent: str
    """Empty where groups mix agents."""
    taskset: str

    def __str__(self) -> str:
        return f"{self.agent or 'mixed'}/{self.taskset}"


class Mixture:
    """The part of every position in the training order, a function of the weights alone.

    A position goes to a part with which the last 20 positions hold every part, agent and task set within two groups of its share
    (10 %). Where several do, it goes to the one that keeps the sum of cosh(2e) over all of them lowest: e is what a part, agent or
    task set has had so far, less its share, so a large surplus or lack counts far more than several small ones.

    With two parts the one that lacks more is taken, so e never exceeds a half: 20 positions are off by one group at most. For more
    parts that there is always one that fits was tried and is not proven: 2,500 random mixtures of up to six agents and four task
    sets, 120 positions each, had no window of 20 that was off by more than two.

    Args:
        agents: agent to weight; not all 0.
        tasksets: task set to weight; not all 0.
    """

    def __init__(self, agents: Mapping[str, float], tasksets: Mapping[str, float]) -> None:
        of_agents, of_tasksets = _shares(agents), _shares(tasksets)
        products = {Part(agent, taskset): x * y for agent, x in of_agents.items() for taskset, y in of_tasksets.items()}
        self.parts = list(products)
        # Of each part, and of each agent and each task set, which are parts with one side empty.
        self._shares = {**products, **{Part(a, ""): x for a, x in of_agents.items()}, **{Part("", s): y for s, y in of_tasksets.items()}}
        self._order: list[Part] = []
        self._counts: Counter[Part] = Counter()
        self._recent: Counter[Part] = Counter()

    def at(self, position: int) -> Part:
        """Return the part of a position."""
        while len(self._order) <= position:
            if len(self._order) >= SPAN:
                self._recent.subtract(_counted(self._order[-SPAN]))
            ranked = sorted(self.parts, key=self._growth)  # of equals the first in the config's order
            part = next((part for part in ranked if self._excess(part) <= SAME), None) or min(ranked, key=self._excess)
            self._order.append(part)
            for counts in (self._counts, self._recent):
                counts.update(_counted(part))
        return self._order[position]

    def _growth(self, part: Part) -> float:
        """Return what one position more of a part adds to the sum of cosh(2e)."""
        n = len(self._order) + 1
        surplus = [self._counts[key] - n * self._shares[key] for key in _counted(part)]
        # Rounded, so that equal weights are equal whatever they were divided by.
        return round(sum(math.cosh(2 * (e + 1)) - math.cosh(2 * e) for e in surplus), 9)

    def _excess(self, part: Part) -> float:
        """Return by how much the last positions are out of bounds when this part comes next."""
        n, mine = min(len(self._order) + 1, SPAN), _counted(part)
        off = (abs(self._recent[key] + (key in mine) - n * share) for key, share in self._shares.items())
        return sum(max(0.0, value - WITHIN) for value in off)


class Gate(Generic[T]):
    """Lets finished groups leave so that the sequence of their parts is that of the positions.

    Groups of one part may change positions, within the window. So what leaves is mixed exactly as it was drawn, and a slow group
    holds up others only when its part, or the window, is used up. It cannot hold them for ever: the first position is under way.
    A run that goes on with other weights mixes what is left by the new ones.

    Args:
        mixture: the part of each position.
        first: the first position that has not left.
        gone: positions after it that have.
    """

    def __init__(self, mixture: Mixture, first: int, gone: Collection[int]) -> None:
        self._mixture, self._first, self._gone = mixture, first, set(gone)
        n_left = first + len(self._gone)
        # With the weights of before, what has left is what the first positions ask for; else each position stands for itself.
        same = Counter(map(mixture.at, self._gone)) == Counter(map(mixture.at, range(first, n_left)))
        self._turns = itertools.count(n_left) if same else open_positions(first, gone)
        self._turn = next(self._turns)
        self._ready: dict[int, T] = {}

    def finish(self, position: int, item: T) -> list[T]:
        """Take a finished group and return those that leave now, in order."""
        self._ready[position] = item
        leaving = []
        while (leaver := self._next()) is not None:
            leaving.append(self._ready.pop(leaver))
            self._turn = next(self._turns)
            self._gone.add(leaver)
            while self._first in self._gone:
                self._gone.remove(self._first)
                self._first += 1
        return leaving

    def _next(self) -> int | None:
        part, end = self._mixture.at(self._turn), self._first + WINDOW
        return min((position for position in self._ready if position < end and self._mixture.at(position) == part), default=None)


def open_positions(first: int, gone: Collection[int]) -> Iterator[int]:
    """Yield the positions from `first` on, without those in `gone`."""
    left_out = set(gone)
    return (position for position in itertools.count(first) if position not in left_out)


def _counted(part: Part) -> tuple[Part, ...]:
    """Return what a position of this part counts for, each once: the part, its agent and its task set."""
    return tuple(dict.fromkeys((part, Part(part.agent, ""), Part("", part.taskset))))


def _shares(weights: Mapping[str, float]) -> dict[str, float]:
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items() if weight > 0}
