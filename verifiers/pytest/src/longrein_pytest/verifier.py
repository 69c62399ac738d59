"""The verifier "pytest": two sandboxes, one for the hidden tests and one for the workspace's code, and a socket between them."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from attrs import evolve, field, frozen, validators

from longrein.errors import SandboxError
from longrein.model import CaseResult, Verdict
from longrein.sandbox.bwrap import interpreter, memory, system
from longrein.sandbox.folders import remove
from longrein.sandbox.limits import SandboxLimits
from longrein.sandbox.process import INIT, Tree
from longrein.tasks.command import LIMITS, bwrap, bwrap_works, finish, start_command
from longrein.verifier import Verifier
from longrein_pytest.expected import expected_tests

PROGRAM = Path(__file__).with_name("program.py")
REPORT_MB = 16
WRONG = ("AssertionError", "Failed")
"""Exceptions by which a test says that a result is wrong."""
positive: Any = validators.gt(0)


@frozen
class PytestOptions:
    """Options of the verifier: limits of each of the two processes, whose memory and time the task's own settings name."""

    max_processes: int = field(default=64, validator=positive)
    """Processes and threads."""


class PytestVerifier(Verifier):
    """Passes a workspace when every hidden test was reported as passed."""

    name: ClassVar[str] = "pytest"
    Options: ClassVar[type] = PytestOptions
    options: PytestOptions

    async def grade(self, hidden: Mapping[str, Any], workspace: Path) -> Verdict:
        """Grade `workspace` with the test files in the folder `hidden` of a task's folder."""
        tests = Path(hidden["folder"]) / "hidden"
        try:
            expected = expected_tests(tests)
        except (SyntaxError, ValueError) as error:
            return Verdict.unscorable(f"a hidden test file is not Python: {type(error).__name__}")
        if not expected:
            return Verdict.unscorable("there are no hidden tests: hidden/ takes test_*.py with functions test_*")
        root = Path(tempfile.mkdtemp(prefix="longrein-verify-"))
        isolated = await asyncio.to_thread(bwrap_works)
        details: dict[str, Any] = {"isolation": "bwrap" if isolated else "processes"}
        try:
            await asyncio.to_thread(shutil.copytree, tests, root / "hidden")
            limits = evolve(LIMITS, memory_mb=hidden["memory_mb"], max_processes=self.options.max_processes)
            ended_by, output = await _run(root, workspace, hidden["timeout_s"], limits, isolated=isolated)
            report = read_report(root / "report.jsonl")
        except (OSError, shutil.Error, SandboxError) as error:
            return Verdict.unscorable(f"cannot run the hidden tests: {error}", **details)
        finally:
            await asyncio.to_thread(remove, root)
        if ended_by == "killed":
            return Verdict.unscorable("the hidden tests' process was killed from outside", **details)
        if not report or report[-1].get("finished") == 4:
            return Verdict.unscorable(f"pytest did not start: {output[-300:].strip()}", **details)
        return verdict(expected, report, "timeout" if ended_by == "timeout" else "runtime_error", details)


async def _run(root: Path, workspace: Path, timeout_s: float, limits: SandboxLimits, *, isolated: bool) -> tuple[str, str]:
    """Run both sides; return how the tests' side ended and its output."""
    ours, theirs = socket.socketpair()
    program: Tree | None = None
    with ours, theirs:
        program = await _start_program(root, workspace, limits, theirs.fileno(), isolated=isolated)
        drained = asyncio.create_task(finish(program, timeout_s + 60))
        try:
            tests = await _start_tests(root, workspace, limits, ours.fileno(), isolated=isolated)
        except BaseException:
            program.stop("start")
            await drained
            raise
    try:
        output = await finish(tests, timeout_s)
        return tests.ended_by, output
    finally:
        program.stop("done")
        await drained


async def _start_program(root: Path, workspace: Path, limits: SandboxLimits, descriptor: int, *, isolated: bool) -> Tree:
    """Start the workspace's side, which sees the system and the workspace: neither the hidden tests nor the other process."""
    inside = Path("/work") if isolated else workspace
    prefix: list[str] = []
    if isolated:
        prefix = ["bwrap", *system(root / "etc"), *memory({"/tmp": limits.disk_mb}), "--bind", str(workspace), str(inside)]
        for file in (INIT, PROGRAM):
            prefix += ["--ro-bind", str(file), str(file)]
        prefix += ["--remount-ro", "/", "--"]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LANG": "C.UTF-8"}
    argv = [str(interpreter()), "-s", "-P", "-B", str(PROGRAM), str(descriptor), str(inside)]
    return await start_command(argv, prefix=prefix, env=env, workdir=inside, limits=limits, pass_fds=[descriptor])


async def _start_tests(root: Path, workspace: Path, limits: SandboxLimits, descriptor: int, *, isolated: bool) -> Tree:
    """Start pytest, which sees the hidden tests and not the workspace; nothing that an agent wrote runs or is read there."""
    hidden, settings = root / "hidden", root / "hidden" / "pytest.ini"
    if not settings.exists():
        settings = root / "pytest.ini"
        settings.write_text("[pytest]\n")
    plan = {"descriptor": descriptor, "names": top_level(workspace), "report": str(root / "report.jsonl")}
    env = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(root),
        "LANG": "C.UTF-8",
        "LONGREIN_PYTEST": json.dumps(plan),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    argv = [sys.executable, "-I", "-B", "-m", "pytest", str(hidden), "--rootdir", str(hidden), "-c", str(settings)]
    argv += ["-p", "longrein_pytest.session", "-p", "no:cacheprovider", "-q", "--tb=short"]
    return await start_command(argv, prefix=bwrap(root) if isolated else [], env=env, workdir=hidden, limits=limits, pass_fds=[descriptor])


def top_level(workspace: Path) -> list[str]:
    """Return the names of the modules and packages at the top of a workspace, and in its folder src."""
    names: set[str] = set()
    for folder in (workspace, workspace / "src"):
        for path in folder.iterdir() if folder.is_dir() and not folder.is_symlink() else ():
            if path.suffix == ".py" or path.is_dir():
                names.add(path.stem)
    return sorted(name for name in names if name.isidentifier())


def read_report(path: Path) -> list[dict[str, Any]]:
    """Return the lines that the tests' side wrote; a torn last one is left out."""
    if not path.is_file():
        return []
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file.read(REPORT_MB << 20).splitlines(keepends=True) if line.endswith("\n")]


def verdict(expected: list[str], report: list[dict[str, Any]], missing: str, details: dict[str, Any]) -> Verdict:
    """Return the verdict on what was reported: a test that was not, or an end that was not, never counts as passed.

    Args:
        expected: tests that have to be reported, without parameters.
        report: see `read_report`.
        missing: status of tests that were not reported.
        details: for the record.
    """
    results: dict[str, CaseResult] = {}
    for line in report:
        if "test" in line and (line["test"] not in results or not line["passed"]):
            results[line["test"]] = _case(line)
    seen = {name.partition("[")[0] for name in results}
    broken = {line["file"]: line for line in report if "file" in line}
    for name in expected:
        if name not in seen:
            line = broken.get(name.partition("::")[0], {})
            why = f"{name}: not reported" + (f"; {line['kind']} {line.get('detail', '')}".rstrip() if line else "")
            results[name] = CaseResult(missing, why, expected=line.get("expected", ""))
    cases = tuple(results.values())
    passed = sum(case.status == "passed" for case in cases)
    if report[-1].get("finished") != 0 and passed == len(cases):
        cases = (*cases, CaseResult(missing, "the test session did not end well"))
    reason = f"{passed} of {len(cases)} tests passed"
    if passed == len(cases):
        return Verdict("passed", 1.0, reason, cases, details)
    first = next(case for case in cases if case.status != "passed")
    return Verdict("failed", passed / len(cases), f"{reason}; first failure: {first.status}, {first.detail}", cases, details)


def _case(line: Mapping[str, Any]) -> CaseResult:
    """Return a test's result. Parameters and the text of an assertion hold what was expected and go where records do not."""
    name, _, parameters = str(line["test"]).partition("[")
    wall_s = round(float(line["duration_s"]), 4)
    if line["passed"]:
        return CaseResult("passed", name, expected=parameters[:-1], wall_s=wall_s)
    status = "wrong_answer" if line["kind"] in WRONG else "runtime_error"
    detail = f"{name}: {line['kind']} {line.get('detail', '')}".rstrip()
    return CaseResult(status, detail[:300], expected=line.get("expected", parameters[:-1])[:300], wall_s=wall_s)
