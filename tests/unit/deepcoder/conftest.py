"""One verifier for each module, with small limits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longrein.model import Verdict
from longrein_deepcoder.verifier import DeepCoderVerifier, DeepCoderVerifierOptions

OPTIONS: dict[str, Any] = {"cpu_s": 1.0, "wall_s": 2.0, "memory_mb": 256, "output_kb": 1024, "disk_mb": 8}
Grade = Callable[..., Verdict]


@pytest.fixture(scope="module")
def verifier() -> Iterator[DeepCoderVerifier]:
    made = DeepCoderVerifier(DeepCoderVerifierOptions(**OPTIONS))
    yield made
    made.close()


@pytest.fixture
def grade(verifier: DeepCoderVerifier, tmp_path: Path) -> Grade:
    """Grade a program on (input, output) pairs; `fn` makes it a call row."""

    def run(
        source: str | bytes | None,
        *pairs: tuple[Any, Any],
        fn: str | None = None,
        compare: str = "lines",
        files: dict[str, str] | None = None,
    ) -> Verdict:
        workspace = tmp_path / "workspace"
        workspace.mkdir(exist_ok=True)
        for name, text in (files or {}).items():
            (workspace / name).write_text(text)
        if source is not None:
            (workspace / "solution.py").write_bytes(source.encode() if isinstance(source, str) else source)
        cases = [{"input": given, "output": expected} for given, expected in pairs]
        hidden = {"kind": "call" if fn else "stdin", "fn_name": fn, "cases": cases, "compare": compare}
        return verifier.grade(hidden, workspace)

    return run
