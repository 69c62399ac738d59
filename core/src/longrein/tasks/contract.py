"""Tasks with which the folder verifier is tried."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from longrein.tasks.folder import FolderVerifier
from longrein.testing import Sample, VerifierContract
from longrein.verifier import Verifier

CHECK = """import pathlib, subprocess, sys
wanted = pathlib.Path("../hidden/wanted").read_text()
done = subprocess.run([sys.executable, "solution.py"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
sys.exit(done.stdout != wanted)
"""


class FolderContract(VerifierContract):
    """A verify command that compares the output of a program with a hidden file."""

    verifier: ClassVar[type[Verifier]] = FolderVerifier

    def samples(self, folder: Path) -> Sequence[Sample]:
        """Write the hidden files of a task."""
        hidden = folder / "hidden"
        hidden.mkdir()
        (hidden / "check.py").write_text(CHECK, encoding="utf-8")
        (hidden / "wanted").write_text("canary-8362\n", encoding="utf-8")
        task = {"folder": str(folder), "verify": '"$PYTHON" ../hidden/check.py', "timeout_s": 60.0, "memory_mb": 1024}
        return [Sample(task, {"solution.py": "print('canary-' + str(2 * 4181))\n"}, ["canary-8362"])]
