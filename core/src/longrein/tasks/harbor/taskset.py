"""The task set "harbor": folders of Harbor's format that this machine can run."""

from __future__ import annotations

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from longrein.errors import SandboxError, TaskError
from longrein.model import PublicTask, Task, TaskRef
from longrein.rollout.grading import unpack
from longrein.sandbox.folders import collect
from longrein.tasks.command import LIMITS
from longrein.tasks.folder import TaskFolders, digest
from longrein.tasks.harbor.box import run_script
from longrein.tasks.harbor.image import Image, read_image
from longrein.tasks.harbor.settings import HarborSettings, read_settings

CANARY = re.compile(r"(<!--|#).*canary", re.IGNORECASE)
"""A mark of data sets at the head of an instruction, which Harbor does not show to agents either."""
NEEDS_NETWORK = re.compile(
    r"(?<![\w./-])(apt-get|apt|apk|yum|dnf|curl|wget|pip3?|uvx?|npm|npx|pnpm|yarn|conda|cargo|gem|git clone)(?![\w./-])"
)
SOLVE_S = 600.0


@frozen
class HarborOptions:
    """Options of the task set."""

    path: Path
    """A task's folder, or a folder of such folders."""
    offline: bool = False
    """Take tasks that ask for a network too; their sessions have none."""


class HarborTasks(TaskFolders):
    """One Harbor task, or every one in a folder, in the order of their names."""

    name: ClassVar[str] = "harbor"
    Options: ClassVar[type] = HarborOptions
    options: HarborOptions

    def hidden(self, task_id: str) -> dict[str, Any]:
        """Return the folder of tests, where they expect the workspace, and their time."""
        folder = self._folder(task_id)
        settings, image = self._read(folder)
        return {"tests": str(folder / "tests"), "workdir": image.workdir, "timeout_s": settings.verifier_timeout_s}

    def solution(self, task_id: str) -> Mapping[str, str] | None:
        """Return the files that solution/solve.sh writes when it is run as the tests are, or None without that script.

        Raises:
            TaskError: it does not end well, or writes a file that is not text.
        """
        folder = self._folder(task_id)
        if not (folder / "solution" / "solve.sh").is_file():
            return None
        _, image = self._read(folder)
        try:
            return asyncio.run(_solve(folder / "solution", image))
        except (SandboxError, OSError) as error:
            raise TaskError(f"solution/solve.sh cannot be run: {error}") from error

    def _folders(self) -> list[Path]:
        root = self.options.path.resolve()
        if not root.is_dir():
            raise TaskError(f"no such folder of Harbor tasks: {self.options.path}")
        if not (found := _found(root)):
            raise TaskError(f"{self.options.path} is no Harbor task and holds none; a task's folder has task.toml and instruction.md")
        return found

    def _read(self, folder: Path) -> tuple[HarborSettings, Image]:
        return read_settings(folder, offline=self.options.offline), read_image(folder / "environment")

    def _task(self, folder: Path) -> Task:
        if not (folder / "instruction.md").is_file():
            raise TaskError("it has no instruction.md of its own: tasks of several steps are not run here")
        settings, image = self._read(folder)
        _check_tests(folder / "tests" / "test.sh")
        public = PublicTask(_instruction(folder / "instruction.md"), image.files, workdir=image.workdir)
        options = {"path": str(self.options.path), "offline": self.options.offline}
        ref = TaskRef(self.name, folder.name, options)
        return Task(folder.name, digest(folder), public, ref, "harbor", {"asked": dict(settings.asked)})


def holds_tasks(folder: Path) -> bool:
    """Return whether a folder is a Harbor task or holds some."""
    return folder.is_dir() and bool(_found(folder))


def _found(root: Path) -> list[Path]:
    if _is_task(root):
        return [root]
    return sorted(path for path in root.iterdir() if _is_task(path))


def _is_task(folder: Path) -> bool:
    return (folder / "task.toml").is_file() and ((folder / "instruction.md").is_file() or (folder / "steps").is_dir())


def _instruction(path: Path) -> str:
    try:
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    except UnicodeDecodeError as error:
        raise TaskError("its instruction.md is not UTF-8 text") from error
    while lines and (CANARY.match(lines[0].strip()) or not lines[0].strip()):
        del lines[0]
    if not lines:
        raise TaskError("its instruction.md is empty")
    return "".join(lines)


def _check_tests(script: Path) -> None:
    """Refuse tests that install or download: without a network they would call every workspace wrong."""
    if not script.is_file():
        raise TaskError("it has no tests/test.sh")
    lines = script.read_text(encoding="utf-8", errors="replace").splitlines()
    commands = "\n".join(line for line in lines if not line.lstrip().startswith("#"))
    if found := NEEDS_NETWORK.search(commands):
        raise TaskError(f"tests/test.sh calls {found[1]}: tests have no network here, so what they need must be installed beforehand")


async def _solve(folder: Path, image: Image) -> dict[str, str]:
    with tempfile.TemporaryDirectory(prefix="longrein-solve-") as name:
        unpack({path: text.encode() for path, text in image.files.items()}, Path(name))
        async with run_script(
            "/solution/solve.sh", Path(name), workdir=image.workdir, folders={"/solution": folder}, timeout_s=SOLVE_S, limits=LIMITS
        ) as finished:
            if finished.exit_code != 0:
                how = "its time was over" if finished.exit_code is None else f"exit code {finished.exit_code}"
                raise TaskError(f"solution/solve.sh failed ({how}): {finished.output[-300:].strip()}")
            files, _ = collect(finished.workspace, LIMITS.workspace_mb)
    try:
        return {path: content.decode("utf-8") for path, content in files.items()}
    except UnicodeDecodeError as error:
        raise TaskError(f"solution/solve.sh writes a file that is not UTF-8 text: {error}") from error
