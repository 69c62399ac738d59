"""The shipped verifiers hold to the contract, and it finds what a verifier gets wrong."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from longrein.model import Verdict
from longrein.tasks.contract import FolderContract
from longrein.tasks.harbor.contract import HarborContract
from longrein.testing import Sample, VerifierContract
from longrein.verifier import Verifier
from longrein_command.contract import CommandContract
from longrein_deepcoder.contract import DeepCoderContract


class TestFolder(FolderContract):
    pass


class TestHarbor(HarborContract):
    pass


class TestDeepCoder(DeepCoderContract):
    pass


class TestCommand(CommandContract):
    pass


class Plain(Verifier):
    """Runs the program here; `change` is what a faulty one does besides."""

    name = "plain"

    def grade(self, hidden: Any, workspace: Path) -> Verdict:
        program = workspace / "solution.py"
        if not program.exists():
            return self.judge(hidden, "", workspace)
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=False)
        return self.judge(hidden, done.stdout.strip(), workspace)

    def judge(self, hidden: Any, got: str, workspace: Path) -> Verdict:
        right = got == hidden["wanted"]
        return Verdict("passed" if right else "failed", float(right))


class TestPlain(VerifierContract):
    """A verifier of a few lines holds but for what its programs start, which it does not look after."""

    verifier = Plain

    def samples(self, folder: Path) -> Sequence[Sample]:
        return [Sample({"wanted": "canary-7"}, {"solution.py": "print('canary-' + str(3 + 4))\n"}, ["canary-7"])]

    def test_leaves_no_process(self) -> None:
        with pytest.raises(AssertionError, match=r"still running after the verdict: sleep \d+"):
            super().test_leaves_no_process()
        subprocess.run(["sh", "-c", "true"], check=True)


def faulty(**methods: Any) -> VerifierContract:
    """Return the contract of a verifier with other methods."""
    made: VerifierContract = type("Faulty", (TestPlain,), {"verifier": type("Faulty", (Plain,), methods)})()
    return made


def crashes_without_solution(self: Plain, hidden: Any, got: str, workspace: Path) -> Verdict:
    return Verdict("passed", 1.0) if (workspace / "solution.py").read_text() and got == hidden["wanted"] else Verdict("failed", 0.0)


def writes(self: Plain, hidden: Any, got: str, workspace: Path) -> Verdict:
    (workspace / "grade.log").write_text(got)
    return Plain.judge(self, hidden, got, workspace)


def litters(self: Plain, hidden: Any, got: str, workspace: Path) -> Verdict:
    Path(tempfile.gettempdir(), "grade.log").write_text(got)
    return Plain.judge(self, hidden, got, workspace)


def tells(self: Plain, hidden: Any, got: str, workspace: Path) -> Verdict:
    right = got == hidden["wanted"]
    return Verdict("passed" if right else "failed", float(right), f"wanted {hidden['wanted']}, got {got}")


def blames(self: Plain, hidden: Any, got: str, workspace: Path) -> Verdict:
    return Verdict("failed", 0.0) if not hidden else Plain.judge(self, hidden, got, workspace)


def wavers(self: Plain, hidden: Any, got: str, workspace: Path) -> Verdict:
    return Verdict("failed", (time.monotonic_ns() % 1000) / 2000)


class Shared(Plain):
    """Keeps the workspace of a grade where the next one finds it."""

    def grade(self, hidden: Any, workspace: Path) -> Verdict:
        self.workspace = workspace
        time.sleep(0.2)  # the fault needs another grade in between
        return super().grade(hidden, self.workspace)


@pytest.mark.parametrize(
    ("judge", "check", "says"),
    [
        (crashes_without_solution, "fails_an_empty_workspace", r"an empty workspace got unscorable, score None, FileNotFoundError"),
        (writes, "leaves_the_workspace", r"grading changed the workspace: grade\.log"),
        (litters, "leaves_no_file", r"left in the temporary folder: grade\.log"),
        (tells, "verdicts_hide_the_answers", r"the verdict holds the hidden text 'canary-7'"),
        (tells, "verdicts_are_short", r"a verdict of \d{4,} KiB, the limit is 64"),
        (blames, "trouble_is_unscorable", r"hidden data None got failed"),
        (wavers, "passes_the_known_solution", r"the solution got failed"),
        (wavers, "same_workspace_same_verdict", r"two verdicts on one workspace differ"),
    ],
)
def test_a_fault_is_found(judge: Any, check: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        getattr(faulty(judge=judge), f"test_{check}")()


def test_a_verifier_that_mixes_workspaces_is_found() -> None:
    contract = type("Mixing", (TestPlain,), {"verifier": Shared})()
    with pytest.raises(AssertionError, match="4 at once, got"):
        contract.test_many_at_once()
