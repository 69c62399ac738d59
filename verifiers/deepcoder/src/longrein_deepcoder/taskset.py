"""The task set "deepcoder": public parts for agents, hidden cases for the verifier."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from attrs import field, frozen, validators

from longrein.errors import TaskError
from longrein.model import Example, PublicTask, Task, TaskRef
from longrein.tasks.examples import with_examples
from longrein.verifier import TaskSet
from longrein_deepcoder.prompt import SOLUTION, prompt
from longrein_deepcoder.rows import Case, ConfigName, NormalRow, Rejected, normalise
from longrein_deepcoder.source import Hub, JsonLines, Source

positive: Any = validators.gt(0)
optional_positive: Any = validators.optional(positive)
DEFAULT_SPLIT: Mapping[str, str] = {"codeforces": "test"}
PUBLIC_CASES, FEWEST_FOR_PUBLIC = 2, 4


@frozen
class DeepCoderOptions:
    """Options of the task set."""

    config: ConfigName = "primeintellect"
    path: Path | None = None
    """A local JSONL file of rows in the shape of `config`; without it the hub is asked."""
    split: str | None = None
    """Default: test for codeforces, train for the others."""
    max_row_mb: int = field(default=16, validator=positive)
    """Larger rows are rejected as "row too large", without being loaded."""
    max_graded: int | None = field(default=15, validator=optional_positive)
    """Of more hidden cases, those with the longest inputs are graded (first wins ties); None grades all."""


@frozen
class Split:
    """Which cases of a row are shown and which are graded; indices into the row's cases, ascending."""

    public: tuple[int, ...]
    graded: tuple[int, ...]


def split_cases(cases: Sequence[Case], max_graded: int | None) -> Split:
    """Split by the row alone: with 4 cases or more the 2 with the shortest inputs are public (first wins ties) and never graded."""
    by_size = sorted(range(len(cases)), key=lambda index: (cases[index].size, index))
    public = by_size[:PUBLIC_CASES] if len(cases) >= FEWEST_FOR_PUBLIC else []
    rest = [index for index in range(len(cases)) if index not in public]
    longest = sorted(rest, key=lambda index: (-cases[index].size, index))[:max_graded]
    return Split(tuple(sorted(public)), tuple(sorted(longest)))


class DeepCoderTasks(TaskSet):
    """Rows of the DeepCoder data set."""

    name: ClassVar[str] = "deepcoder"
    Options: ClassVar[type] = DeepCoderOptions
    options: DeepCoderOptions

    @cached_property
    def _source(self) -> Source:
        if self.options.path is not None:
            return JsonLines(self.options.path, self.options.max_row_mb)
        return Hub(self.options.config, self.options.split or DEFAULT_SPLIT.get(self.options.config, "train"), self.options.max_row_mb)

    @property
    def training_refused(self) -> str | None:
        """Why this set must not be trained on, or None."""
        if self.options.config == "codeforces":
            return "deepcoder:codeforces is for evaluation only: nearly all its rows are graded by their public sample"
        return None

    def tasks(self) -> Iterator[Task]:
        """Yield the usable rows in order; the others are listed in `rejected`."""
        self.rejected = {}
        for index, row in enumerate(self._source):
            task_id = f"{self.options.config}-{index}"
            try:
                if isinstance(row, Rejected):
                    raise row
                yield self._task(task_id, row, normalise(self.options.config, row))
            except Rejected as error:
                self.rejected.setdefault(error.reason, []).append(task_id)

    def hidden(self, task_id: str) -> dict[str, Any]:
        """Return the graded cases of a task in normal form."""
        normal = normalise(self.options.config, self._row(task_id))
        split = split_cases(normal.cases, self.options.max_graded)
        graded = normal.hidden([normal.cases[index] for index in split.graded])
        return {**graded, "graded": list(split.graded), "public": list(split.public)}

    def all_cases(self, task_id: str) -> dict[str, Any]:
        """Return all cases of a task in normal form, public ones included."""
        return self.row(self._row(task_id))[1]

    def solution(self, task_id: str) -> Mapping[str, str] | None:
        """Return the row's first own solution, or None."""
        solutions = self._row(task_id).get("solutions")
        if isinstance(solutions, str):
            solutions = [solutions]
        if not solutions or not isinstance(solutions[0], str):
            return None
        return {SOLUTION: unfenced(solutions[0])}

    def row(self, row: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the verifier's name and all cases of any row of the config, public ones included."""
        try:
            normal = normalise(self.options.config, row)
        except Rejected as error:
            raise TaskError(str(error)) from error
        return "deepcoder", normal.hidden(normal.cases)

    def _row(self, task_id: str) -> Mapping[str, Any]:
        config, _, index = task_id.rpartition("-")
        if config != self.options.config or not index.isdigit():
            raise TaskError(f"unknown task {task_id!r}; they are named {self.options.config}-0, -1, ...")
        try:
            return self._source.row(int(index))
        except IndexError:
            raise TaskError(f"unknown task {task_id!r}: there are fewer rows") from None

    def _task(self, task_id: str, row: Mapping[str, Any], normal: NormalRow) -> Task:
        split = split_cases(normal.cases, self.options.max_graded)
        examples = tuple(example(normal.cases[index]) for index in split.public)
        public = PublicTask(prompt(row, normal, examples), examples=examples)
        content = json.dumps([public.prompt, normal.hidden(normal.cases)], sort_keys=True, default=str)
        return Task(
            id=task_id,
            digest=hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest(),
            public=with_examples(public, fn_name=normal.fn_name, compare=normal.compare),
            ref=TaskRef(self.name, task_id, _reference(self.options)),
            verifier="deepcoder",
            metadata={"kind": normal.kind, "compare": normal.compare, "public": list(split.public), "graded": list(split.graded)},
        )


def _reference(options: DeepCoderOptions) -> Mapping[str, Any]:
    values = {name: getattr(options, name) for name in ("config", "split", "max_row_mb", "max_graded")}
    return {**values, "path": None if options.path is None else str(options.path)}


def example(case: Case) -> Example:
    """Return a case as text: as it stands for stdin, as JSON for a call."""
    if isinstance(case.input, str):
        return Example(case.input, case.output)
    return Example(json.dumps(case.input, default=str), json.dumps(case.output, default=str))


def unfenced(text: str) -> str:
    """Return the code of a solution without its code fence."""
    match = re.search(r"```[^\n]*\n(.*?)\n?```", text, re.S)
    return match[1] + "\n" if match else text
