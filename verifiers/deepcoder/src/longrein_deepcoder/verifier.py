"""The verifier "deepcoder": runs solution.py on each case in a process apart and decides here."""

from __future__ import annotations

import os
import stat
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

from attrs import field, frozen, validators

from longrein.errors import SandboxError
from longrein.model import CaseResult, Verdict
from longrein.verifier import Verifier
from longrein_deepcoder.forked import ForkServer, Limits
from longrein_deepcoder.judge import judge
from longrein_deepcoder.prompt import SOLUTION

positive: Any = validators.gt(0)
CASES_PER_LANE = 4
"""A second box for the same program costs as much as two or three cases."""
ATTEMPTS = 2
"""A grader's trouble (a process killed from outside) is tried again once."""


@frozen
class DeepCoderVerifierOptions:
    """Options of the verifier: limits of one case, and where programs run."""

    cpu_s: float = field(default=6.0, validator=positive)
    """CPU seconds of all processes of a case; this decides."""
    wall_s: float = field(default=20.0, validator=positive)
    """Wall seconds without those spent waiting for a CPU; guards against programs that sleep."""
    memory_mb: int = field(default=1024, validator=positive)
    output_kb: int = field(default=16384, validator=positive)
    """Of standard output, and of any file that a program writes."""
    disk_mb: int = field(default=64, validator=positive)
    max_processes: int = field(default=64, validator=positive)
    """Processes and threads of a case."""
    python: Path | None = None
    """The interpreter that runs the programs; default: the one that runs longrein."""
    isolation: Literal["auto", "namespaces", "processes"] = "auto"

    @property
    def limits(self) -> Limits:
        """The limits of one case."""
        return Limits(self.cpu_s, self.wall_s, self.memory_mb, self.output_kb, self.disk_mb, self.max_processes)


class DeepCoderVerifier(Verifier):
    """Grades stdin and call rows. One object may grade from several threads at once."""

    name: ClassVar[str] = "deepcoder"
    Options: ClassVar[type] = DeepCoderVerifierOptions
    contract: ClassVar[str | None] = "longrein_deepcoder.contract:DeepCoderContract"
    options: DeepCoderVerifierOptions

    def __init__(self, options: DeepCoderVerifierOptions | None = None) -> None:
        super().__init__(options)
        self._server: ForkServer | None = None
        self._starting = threading.Lock()
        self._cores = os.cpu_count() or 1
        self._slots = threading.BoundedSemaphore(self._cores)
        self._grades, self._counting = 0, threading.Lock()
        self._helpers = ThreadPoolExecutor(self._cores)

    def grade(self, hidden: Mapping[str, Any], workspace: Path) -> Verdict:
        """Grade `workspace`/solution.py on the cases of `hidden` (normal form)."""
        details = {key: hidden[key] for key in ("kind", "compare", "public", "graded") if key in hidden}
        files = read_workspace(workspace)
        if not files.get(SOLUTION, b"").strip():
            return _verdict([CaseResult("no_solution", f"{SOLUTION} is missing or empty")] * len(hidden["cases"]), details)
        trouble = ""
        for _attempt in range(ATTEMPTS):
            try:
                server = self._ready()
                details.update(isolation=server.isolation, python=server.python_version)
                return _verdict(self._cases(server, files, hidden), details)
            except (SandboxError, OSError) as error:
                trouble = f"grader: {error}"
        return Verdict.unscorable(trouble, **details)

    def _cases(self, server: ForkServer, files: Mapping[str, bytes], hidden: Mapping[str, Any]) -> list[CaseResult]:
        """Grade the cases, those of a long row on several cores when there are fewer grades than cores."""
        with self._lanes(len(hidden["cases"]) // CASES_PER_LANE) as lanes:
            parts = [{**hidden, "cases": hidden["cases"][lane::lanes]} for lane in range(lanes)]
            others = [self._helpers.submit(_lane, server, files, part, self.options.limits) for part in parts[1:]]
            try:
                graded = [_lane(server, files, parts[0], self.options.limits)]
            finally:
                wait(others)
            graded += [other.result() for other in others]
        return [graded[index % lanes][index // lanes] for index in range(len(hidden["cases"]))]

    @contextmanager
    def _lanes(self, most: int) -> Iterator[int]:
        """Wait for one core's slot, take at most `most` and a fair share of them in all if they are free, and yield how many."""
        with self._counting:
            self._grades += 1
        self._slots.acquire()
        taken = 1
        try:
            while taken < min(most, self._cores // self._grades) and self._slots.acquire(blocking=False):
                taken += 1
            yield taken
        finally:
            with self._counting:
                self._grades -= 1
            for _ in range(taken):
                self._slots.release()

    def close(self) -> None:
        """End the fork server; the next grade starts another."""
        with self._starting:
            if self._server is not None:
                self._server.close()
                self._server = None

    @property
    def server_pid(self) -> int:
        """Process id of the fork server, which is started when there is none."""
        return self._ready().pid

    def _ready(self) -> ForkServer:
        with self._starting:
            if self._server is None or not self._server.alive:
                self._server = ForkServer(self.options.python or Path(sys.executable), self.options.isolation, self.options.limits)
            return self._server


def read_workspace(folder: Path) -> dict[str, bytes]:
    """Return path to content of the regular files below `folder`; links, pipes and devices are left out."""
    files: dict[str, bytes] = {}
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(parent, name)
            if stat.S_ISREG(path.lstat().st_mode):
                files[str(path.relative_to(folder))] = path.read_bytes()
    return files


def _lane(server: ForkServer, files: Mapping[str, bytes], hidden: Mapping[str, Any], limits: Limits) -> list[CaseResult]:
    """Grade cases one after the other in a box of their own."""
    cases = hidden["cases"]
    inputs = (case["input"] if hidden["kind"] == "call" else case["input"].encode("utf-8", "surrogatepass") for case in cases)
    results: list[CaseResult] = []
    with server.program(files, kind=hidden["kind"], fn_name=hidden["fn_name"]) as program:
        for run, case in zip(program.run(inputs), cases, strict=True):
            results.append(judge(run, case["output"], hidden["compare"], limits))
            if not run.compiled:
                return results[:1] * len(cases)
    return results


def _verdict(cases: list[CaseResult], details: dict[str, Any]) -> Verdict:
    passed = sum(case.status == "passed" for case in cases)
    if not cases:
        return Verdict.unscorable("no cases to grade", **details)
    if passed == len(cases):
        return Verdict("passed", 1.0, f"all {passed} cases passed", tuple(cases), details)
    first = next(case for case in cases if case.status != "passed")
    reason = f"{passed} of {len(cases)} cases passed; first failure: {first.status}" + (f", {first.detail}" if first.detail else "")
    return Verdict("failed", passed / len(cases), reason, tuple(cases), details)
