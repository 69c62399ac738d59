"""The practice exercises: families of operations, each operation's program a plausible candidate for its whole family."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from longrein.errors import TaskError

CONSTANTS = range(2, 42)


def held_out(k: int) -> bool:
    """Return whether a constant belongs to the eval split."""
    return k % 4 == 1


@frozen
class Operation:
    """One operation: its expression in a program, and the same on an input value and a constant."""

    expression: str
    compute: Callable[[Any, int], Any]


@frozen
class Family:
    """Operations on the same kind of input."""

    reads: str
    """First sentence of the statement."""
    prints: str
    """Second sentence; {word} and {k} are filled in."""
    program: str
    """{word}, {expression} and {k} are filled in."""
    draw: Callable[[random.Random, int], Any]
    """Makes an input value for which the operations' answers differ."""
    operations: Mapping[str, Operation] = field(factory=dict)
    """By the word that names it in the statement."""


def _numbers(rng: random.Random, k: int) -> list[int]:
    values = rng.sample(range(k + 1, k + 40), rng.randint(2, 4)) + rng.choices(range(k + 1), k=rng.randint(1, 3))
    rng.shuffle(values)
    return values


FAMILIES: Mapping[str, Family] = {
    "number": Family(
        "Read an integer n.",
        "Print n {word} by {k}.",
        "n = int(input())\n{word} = {expression}\nprint({word})\n",
        lambda rng, k: rng.randint(5, 60),
        {
            "increased": Operation("n + {k}", lambda n, k: n + k),
            "decreased": Operation("n - {k}", lambda n, k: n - k),
            "multiplied": Operation("n * {k}", lambda n, k: n * k),
        },
    ),
    "list": Family(
        "Read integers from one line.",
        "Print the {word} of those above {k}.",
        "xs = [x for x in map(int, input().split()) if x > {k}]\n{word} = {expression}\nprint({word})\n",
        _numbers,
        {
            "count": Operation("len(xs)", lambda xs, k: sum(x > k for x in xs)),
            "total": Operation("sum(xs)", lambda xs, k: sum(x for x in xs if x > k)),
            "largest": Operation("max(xs)", lambda xs, k: max(x for x in xs if x > k)),
        },
    ),
}


@frozen
class Case:
    """Text on standard input and the text expected on standard output."""

    stdin: str
    stdout: str


@frozen
class Exercise:
    """One task before it is dressed."""

    family: str
    word: str
    k: int

    @classmethod
    def of(cls, task_id: str) -> Exercise:
        """Return the exercise with an id such as "number-increased-7".

        Raises:
            TaskError: there is none.
        """
        family, word, k = ([*task_id.split("-"), "", ""])[:3]
        known = family in FAMILIES and word in FAMILIES[family].operations and k.isdecimal() and int(k) in CONSTANTS
        if not known or cls(family, word, int(k)).id != task_id:
            raise TaskError(f"unknown practice task {task_id!r}; they are named like number-increased-7")
        return cls(family, word, int(k))

    @property
    def id(self) -> str:
        """The task's id."""
        return f"{self.family}-{self.word}-{self.k}"

    @property
    def statement(self) -> str:
        """What is asked, without examples."""
        family = FAMILIES[self.family]
        return f"{family.reads} {family.prints.format(word=self.word, k=self.k)}"

    def candidate(self, word: str) -> str:
        """Return the program that calls its answer by the statement's word and computes it by operation `word`."""
        family = FAMILIES[self.family]
        return family.program.replace("{expression}", family.operations[word].expression).format(word=self.word, k=self.k)

    @property
    def candidates(self) -> Sequence[str]:
        """The operation words of the family; the right one is `word`."""
        return tuple(FAMILIES[self.family].operations)

    def cases(self, n: int) -> list[Case]:
        """Return `n` cases, always the same ones."""
        family, rng = FAMILIES[self.family], random.Random(self.id)
        compute = family.operations[self.word].compute
        values = [family.draw(rng, self.k) for _ in range(n)]
        return [Case(_line(value), _line(compute(value, self.k))) for value in values]


def _line(value: Any) -> str:
    return (" ".join(map(str, value)) if isinstance(value, list) else str(value)) + "\n"


def exercises() -> list[Exercise]:
    """Return every exercise, family by family."""
    return [Exercise(name, word, k) for name, family in FAMILIES.items() for word in family.operations for k in CONSTANTS]
