"""Task folders with hidden tests, graded as a session's workspace would be."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from longrein.model import Verdict
from longrein.tasks.folder import FolderOptions, FolderTasks
from longrein_pytest.verifier import PytestOptions, PytestVerifier

Check = Callable[..., Verdict]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Grade a solution.py (and other files) with a hidden test file (and other hidden files)."""

    def run(
        tests: str,
        solution: str | None,
        *,
        files: dict[str, str] | None = None,
        hidden: dict[str, str] | None = None,
        timeout_s: float = 60,
        memory_mb: int = 2048,
        **options: int,
    ) -> Verdict:
        task, workspace = tmp_path / "task", tmp_path / "workspace"
        code = {"solution.py": solution} if solution is not None else {}
        for folder, texts in ((task / "hidden", {"test_it.py": tests, **(hidden or {})}), (workspace, {**code, **(files or {})})):
            for name, text in texts.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(textwrap.dedent(text))
        workspace.mkdir(exist_ok=True)
        (task / "prompt.md").write_text("Write solution.py.\n")
        (task / "task.toml").write_text(f"timeout_s = {timeout_s}\nmemory_mb = {memory_mb}\n")
        tasks = FolderTasks(FolderOptions(task))
        (only,) = tasks.tasks()
        assert only.verifier == "pytest"
        return asyncio.run(PytestVerifier(PytestOptions(**options)).grade(tasks.hidden(only.id), workspace))

    return run
