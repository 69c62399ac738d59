"""The task set "practice": tiny stdin/stdout programs for the practice policy."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from attrs import asdict, field, frozen, validators

from longrein.errors import TaskError
from longrein.model import Example, PublicTask, Task, TaskRef
from longrein.practice.exercises import Case, Exercise, exercises, held_out
from longrein.tasks.examples import CHECK, with_examples
from longrein.verifier import TaskSet

SOLUTION = "solution.py"
N_CASES, N_PUBLIC = 10, 2


@frozen
class PracticeOptions:
    """Options of the task set."""

    split: Literal["train", "eval"] = "train"
    """The splits share operations and wordings; their constants differ."""
    n: int = field(default=24, validator=validators.gt(0))
    """Number of tasks; operations take turns."""
    seed: int = 0
    """Which constants are drawn, and their order."""


class PracticeTasks(TaskSet):
    """Exercises in which a word of the statement decides which of a family's candidate programs is right."""

    name: ClassVar[str] = "practice"
    Options: ClassVar[type] = PracticeOptions
    options: PracticeOptions

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks.

        Raises:
            TaskError: the split has fewer tasks than asked for.
        """
        by_operation: dict[tuple[str, str], list[Exercise]] = {}
        for exercise in exercises():
            if held_out(exercise.k) == (self.options.split == "eval"):
                by_operation.setdefault((exercise.family, exercise.word), []).append(exercise)
        rng = random.Random(self.options.seed)
        for group in by_operation.values():
            rng.shuffle(group)
        turns = [exercise for turn in zip(*by_operation.values(), strict=True) for exercise in turn]
        if self.options.n > len(turns):
            raise TaskError(f"the practice split {self.options.split} has {len(turns)} tasks, n = {self.options.n} were asked for")
        for exercise in turns[: self.options.n]:
            yield self._task(exercise)

    def hidden(self, task_id: str) -> dict[str, Any]:
        """Return the graded cases of a task in normal form."""
        graded = split_cases(Exercise.of(task_id))[1]
        cases = [{"input": case.stdin, "output": case.stdout} for case in graded]
        return {"kind": "stdin", "fn_name": None, "cases": cases, "compare": "lines"}

    def solution(self, task_id: str) -> Mapping[str, str]:
        """Return the right candidate."""
        exercise = Exercise.of(task_id)
        return {SOLUTION: exercise.candidate(exercise.word)}

    def _task(self, exercise: Exercise) -> Task:
        public = public_task(exercise)
        content = json.dumps([public.prompt, self.hidden(exercise.id)], sort_keys=True)
        return Task(
            id=exercise.id,
            digest=hashlib.sha256(content.encode()).hexdigest(),
            public=public,
            ref=TaskRef(self.name, exercise.id, asdict(self.options)),
            verifier="deepcoder",
            metadata={"split": self.options.split},
        )


def split_cases(exercise: Exercise) -> tuple[list[Case], list[Case]]:
    """Return the public and the graded cases: the two with the shortest inputs are public."""
    cases = exercise.cases(N_CASES)
    by_size = sorted(range(len(cases)), key=lambda index: len(cases[index].stdin))
    public = by_size[:N_PUBLIC]
    return [cases[i] for i in sorted(public)], [case for i, case in enumerate(cases) if i not in public]


def public_task(exercise: Exercise) -> PublicTask:
    """Return what agents see of an exercise."""
    examples = tuple(Example(case.stdin, case.stdout) for case in split_cases(exercise)[0])
    parts = [
        exercise.statement,
        f"Write the program to `{SOLUTION}`. It reads standard input and prints to standard output. `python3 {CHECK}` runs the examples.",
        *(f"Example {i}:\nInput:\n```\n{e.stdin}```\nOutput:\n```\n{e.stdout}```" for i, e in enumerate(examples, start=1)),
    ]
    return with_examples(PublicTask("\n\n".join(parts) + "\n", examples=examples))
