"""Tasks with which the deepcoder verifier is tried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from longrein.testing import Sample, VerifierContract
from longrein.verifier import Verifier
from longrein_deepcoder.verifier import DeepCoderVerifier


class DeepCoderContract(VerifierContract):
    """One task of each kind: a program and a function."""

    verifier: ClassVar[type[Verifier]] = DeepCoderVerifier

    def samples(self, folder: Path) -> Sequence[Sample]:
        """Return a program that reads and prints, and a function that is called."""
        program: dict[str, Any] = {"kind": "stdin", "fn_name": None, "compare": "lines"}
        program["cases"] = [{"input": "4181", "output": "canary-8362"}, {"input": "2", "output": "canary-4"}]
        call = {"kind": "call", "fn_name": "double", "compare": "lines", "cases": [{"input": [4181], "output": "canary-8362"}]}
        return [
            Sample(program, {"solution.py": "print(f'canary-{2 * int(input())}')\n"}, ["canary-8362", "4181"]),
            Sample(call, {"solution.py": "def double(n):\n    return f'canary-{2 * n}'\n"}, ["canary-8362", "4181"]),
        ]
