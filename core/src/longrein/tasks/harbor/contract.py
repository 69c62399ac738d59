"""Tasks with which the verifier of Harbor tasks is tried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from longrein.tasks.harbor.verifier import HarborVerifier
from longrein.testing import Sample, VerifierContract
from longrein.verifier import Verifier

TEST = """#!/bin/bash
got=$(python3 /app/solution.py | head -c 1000)
if [ "$got" = "$(cat /tests/wanted)" ]; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
"""


class HarborContract(VerifierContract):
    """Tests that compare the output of a program in /app with a file of theirs."""

    verifier: ClassVar[type[Verifier]] = HarborVerifier

    def samples(self, folder: Path) -> Sequence[Sample]:
        """Write the tests of a task."""
        (folder / "test.sh").write_text(TEST, encoding="utf-8")
        (folder / "wanted").write_text("canary-8362\n", encoding="utf-8")
        task = {"tests": str(folder), "workdir": "/app", "timeout_s": 60.0}
        return [Sample(task, {"solution.py": "print('canary-' + str(2 * 4181))\n"}, ["canary-8362"])]
