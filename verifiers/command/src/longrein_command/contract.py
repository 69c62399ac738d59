"""A task with which the command verifier is tried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from longrein.testing import Sample, VerifierContract
from longrein.verifier import Verifier
from longrein_command import CommandVerifier


class CommandContract(VerifierContract):
    """A program whose output is compared with a hidden file."""

    verifier: ClassVar[type[Verifier]] = CommandVerifier

    def samples(self, folder: Path) -> Sequence[Sample]:
        """Return a task whose answer only the command sees."""
        task = {"command": '"$PYTHON" solution.py > got; cmp -s got ../hidden/wanted', "files": {"wanted": "canary-8362\n"}}
        return [Sample(task, {"solution.py": "print('canary-' + str(2 * 4181))\n"}, ["canary-8362"])]
