"""The conformance kit for verifiers: `class TestMyVerifier(VerifierContract)` with a verifier and samples of its tasks."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from attrs import evolve, field, frozen

from longrein.model import Verdict
from longrein.options import structure
from longrein.plugins.guard import ESCAPES, describe
from longrein.rollout.grading import unpack
from longrein.rollout.serialize import plain
from longrein.testing.contract import Contract, not_applicable, require
from longrein.testing.processes import running_with, unique_s
from longrein.verifier import Verifier

MAX_VERDICT_KB = 64
"""Longest verdict as JSON: it stands in every rollout's record."""
AT_ONCE = 4
FLOOD = "print('flood ' * 2_000_000)\n"


@frozen
class Sample:
    """One task as the verifier meets it."""

    hidden: Any
    """As the task set's `hidden` returns it."""
    solution: Mapping[str, str]
    """Path to text of a workspace that passes."""
    secrets: Sequence[str] = field(default=())
    """Texts of the hidden data that no verdict may hold."""


class VerifierContract(Contract):
    """What every verifier holds to. A contract gives `verifier`, perhaps `options`, and `samples`; name it in the verifier's
    `contract` attribute, so that `longrein check verifier NAME` finds it."""

    verifier: ClassVar[type[Verifier]]

    def samples(self, folder: Path) -> Sequence[Sample]:
        """Return tasks with a known solution; `folder` is there for hidden files and is removed afterwards."""
        not_applicable("the verifier's contract gives no samples: name one in its `contract` attribute, with a method `samples`")

    def test_passes_the_known_solution(self) -> None:
        """The known solution passes with the full score."""
        with self._graded() as grading:
            for sample in grading.samples:
                verdict = grading.grade(sample.hidden, sample.solution)
                require((verdict.status, verdict.score) == ("passed", 1.0), f"the solution got {_short(verdict)}")

    def test_fails_an_empty_workspace(self) -> None:
        """An empty workspace fails; it is neither unscorable nor worth the full score."""
        with self._graded() as grading:
            for sample in grading.samples:
                verdict = grading.grade(sample.hidden, {})
                require(verdict.status == "failed" and (verdict.score or 0) < 1, f"an empty workspace got {_short(verdict)}")

    def test_trouble_is_unscorable(self) -> None:
        """Hidden data that cannot be used makes a session unscorable, never passed or failed."""
        with self._graded() as grading:
            for hidden in (None, {}, {"unknown": ["form"]}):
                verdict = grading.grade(hidden, grading.samples[0].solution)
                require(verdict.status == "unscorable", f"hidden data {hidden!r} got {_short(verdict)}")

    def test_same_workspace_same_verdict(self) -> None:
        """Grading twice gives the same status, score and cases."""
        with self._graded() as grading:
            for sample in grading.samples:
                for workspace in (sample.solution, {}):
                    first, second = (_kernel(grading.grade(sample.hidden, workspace)) for _ in range(2))
                    require(first == second, f"two verdicts on one workspace differ: {first} and {second}")

    def test_many_at_once(self) -> None:
        """Workspaces graded at the same time do not mix."""
        with self._graded() as grading:
            sample = grading.samples[0]
            workspaces = [sample.solution, {}] * AT_ONCE
            with ThreadPoolExecutor(AT_ONCE) as pool:
                found = list(pool.map(lambda workspace: grading.grade(sample.hidden, workspace).status, workspaces))
            require(found == ["passed", "failed"] * AT_ONCE, f"right and empty workspaces in turn, {AT_ONCE} at once, got {found}")

    def test_leaves_the_workspace(self) -> None:
        """The workspace is the same after grading."""
        with self._graded() as grading:
            for sample in grading.samples:
                grading.grade(sample.hidden, sample.solution)
                require(not grading.changed, f"grading changed the workspace: {', '.join(grading.changed)}")

    def test_leaves_no_file(self) -> None:
        """Nothing is left in the temporary folder when the verifier is closed."""
        with self._graded() as grading:
            for sample in grading.samples:
                grading.grade(sample.hidden, sample.solution)
        require(not grading.left, f"left in the temporary folder: {', '.join(grading.left)}")

    def test_leaves_no_process(self) -> None:
        """A program that starts another one in the background leaves none when it is graded."""
        seconds = unique_s()
        start = f'import subprocess as s\ns.Popen(["sleep", "{seconds}"], start_new_session=True, stdin=-3, stdout=-3, stderr=-3)\n'
        with self._graded() as grading:
            for sample in grading.samples:
                programs = {name: start + text for name, text in sample.solution.items() if name.endswith(".py")}
                if not programs:
                    not_applicable("the solutions are no Python programs")
                grading.grade(sample.hidden, {**sample.solution, **programs})
                require(not running_with(seconds), f"still running after the verdict: {'; '.join(running_with(seconds))}")

    def test_verdicts_are_short(self) -> None:
        """However much a program prints, the verdict stays short."""
        with self._graded() as grading:
            for sample in grading.samples:
                verdict = grading.grade(sample.hidden, dict.fromkeys(sample.solution, FLOOD))
                size = len(json.dumps(plain(verdict))) >> 10
                require(size <= MAX_VERDICT_KB, f"a verdict of {size} KiB, the limit is {MAX_VERDICT_KB}")

    def test_verdicts_hide_the_answers(self) -> None:
        """No verdict holds hidden text, but for `expected` of its cases, which is never recorded."""
        with self._graded() as grading:
            secret = [(sample, text) for sample in grading.samples for text in sample.secrets]
            if not secret:
                not_applicable("the samples name no secrets")
            for sample, text in secret:
                for workspace in ({}, dict.fromkeys(sample.solution, FLOOD), sample.solution):
                    verdict = grading.grade(sample.hidden, workspace)
                    kept = evolve(verdict, cases=tuple(evolve(case, expected="", got="") for case in verdict.cases))
                    require(
                        text not in json.dumps(plain(kept), ensure_ascii=False),
                        f"the verdict holds the hidden text {text!r}: {_short(verdict)}",
                    )

    @contextmanager
    def _graded(self) -> Iterator[Grading]:
        made = self.verifier(structure(self.verifier.Options, self.options, where="options"))
        with tempfile.TemporaryDirectory(prefix="lr-kit-") as name:
            folder = Path(name)
            for part in ("hidden", "tmp", "work"):
                (folder / part).mkdir()
            before = tempfile.tempdir, os.environ.get("TMPDIR")
            tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
            grading = Grading(made, self.samples(folder / "hidden"), folder / "work")
            try:
                yield grading
            finally:
                made.close()
                grading.left = sorted(path.name for path in (folder / "tmp").iterdir())
                tempfile.tempdir = before[0]
                os.environ.pop("TMPDIR")
                if before[1] is not None:
                    os.environ["TMPDIR"] = before[1]


class Grading:
    """A verifier at work on samples; `changed` and `left` name files."""

    def __init__(self, verifier: Verifier, samples: Sequence[Sample], folder: Path) -> None:
        self._verifier, self.samples, self._folder = verifier, samples, folder
        self.changed: list[str] = []
        self.left: list[str] = []

    def grade(self, hidden: Any, workspace: Mapping[str, str]) -> Verdict:
        """Return the verdict on a fresh workspace; an exception is unscorable, as it is to the engine."""
        with tempfile.TemporaryDirectory(dir=self._folder) as name:
            unpack({path: text.encode() for path, text in workspace.items()}, Path(name))
            before = _files(Path(name))
            try:
                answer: Any = self._verifier.grade(hidden, Path(name))
                verdict = asyncio.run(_awaited(answer)) if inspect.isawaitable(answer) else answer
            except ESCAPES as error:
                verdict = Verdict.unscorable(describe(error))
            after = _files(Path(name))
        self.changed += sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
        require(isinstance(verdict, Verdict), f"grade answered {verdict!r:.200}; it takes a Verdict")
        return verdict  # type: ignore[no-any-return]


async def _awaited(answer: Any) -> Any:
    return await answer


def _files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def _kernel(verdict: Verdict) -> tuple[Any, ...]:
    return verdict.status, verdict.score, tuple(case.status for case in verdict.cases)


def _short(verdict: Verdict) -> str:
    cases = [case.status for case in verdict.cases][:5]
    return f"{verdict.status}, score {verdict.score}, {verdict.reason[:200] or 'no reason'}, cases {cases}"
