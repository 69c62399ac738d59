"""Tasks that are folders, and the verifier that grades them by a command. Neither needs a plugin.

add-two/
  prompt.md      what the agent is asked
  files/         placed in the workspace (optional)
  hidden/        seen by the verify command only (optional)
  solution/      a right solution, for the `oracle` agent (optional)
  task.toml      verify = "python ../hidden/check.py", timeout_s = 60, check = "run_examples.py" (optional)
  verify.sh      the verify command, where task.toml names none

A task without a verify command is graded by the verifier that task.toml names, or, when hidden/ holds test_*.py, by "pytest".
"""

from __future__ import annotations

import hashlib
import tomllib
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from attrs import evolve, field, frozen, validators

from longrein.errors import TaskError
from longrein.model import PublicTask, Task, TaskRef, Verdict
from longrein.options import structure
from longrein.tasks.command import LIMITS, run_command
from longrein.verifier import TaskSet, Verifier


@frozen
class TaskFile:
    """task.toml"""

    verify: str | None = None
    """Shell command, run in a copy of the workspace with `hidden` beside it (`../hidden`)."""
    timeout_s: float = field(default=60.0, validator=validators.gt(0))
    """Wall time of the grader; a task not verified by then has failed."""
    memory_mb: int = field(default=4096, validator=validators.gt(0))
    """Memory of all that the grader runs."""
    verifier: str | None = None
    """A registered verifier, instead of `verify`; it gets the task's folder and these settings."""
    check: str | None = None
    """A Python script among `files` that exits 0 when the public examples pass."""


@frozen
class FolderOptions:
    """Options of the task set."""

    path: Path
    """A task's folder, or a folder of such folders."""


class TaskFolders(TaskSet):
    """Tasks that are folders: the one that `options.path` names, or every one in it."""

    def tasks(self) -> Iterator[Task]:
        """Yield the tasks; a folder that cannot be used is listed in `rejected`."""
        self.rejected = {}
        for folder in self._folders():
            try:
                yield self._task(folder)
            except TaskError as error:
                self.rejected.setdefault(str(error), []).append(folder.name)

    def _folder(self, task_id: str) -> Path:
        for folder in self._folders():
            if folder.name == task_id:
                return folder
        raise TaskError(f"unknown task {task_id!r} in {self.options.path}")

    @abstractmethod
    def _folders(self) -> list[Path]:
        """Return the folders, in the order of their names; TaskError when there is none."""

    @abstractmethod
    def _task(self, folder: Path) -> Task:
        """Return the task of a folder; TaskError when it cannot be used."""


class FolderTasks(TaskFolders):
    """One task, or every task in a folder, in the order of their names."""

    name: ClassVar[str] = "folder"
    Options: ClassVar[type] = FolderOptions
    options: FolderOptions

    def hidden(self, task_id: str) -> dict[str, Any]:
        """Return the task's folder, verify command (or None) and limits."""
        folder = self._folder(task_id)
        settings = _settings(folder)
        return {
            "folder": str(folder),
            "verify": _command(folder, settings),
            "timeout_s": settings.timeout_s,
            "memory_mb": settings.memory_mb,
        }

    def solution(self, task_id: str) -> Mapping[str, str] | None:
        """Return the files of `solution/`, or None."""
        return _texts(self._folder(task_id) / "solution") or None

    def _folders(self) -> list[Path]:
        root = self.options.path.resolve()
        if not root.is_dir():
            raise TaskError(f"no such task folder: {self.options.path}")
        if (root / "prompt.md").is_file():
            return [root]
        found = sorted(path for path in root.iterdir() if (path / "prompt.md").is_file())
        if not found:
            raise TaskError(f"{self.options.path} is no task and holds none; a task's folder has a prompt.md")
        return found

    def _task(self, folder: Path) -> Task:
        settings = _settings(folder)
        verifier = _verifier(folder, settings)
        files = _texts(folder / "files")
        if settings.check is not None and settings.check not in files:
            raise TaskError(f"{folder.name}: check {settings.check!r} is not among files/")
        public = PublicTask((folder / "prompt.md").read_text(encoding="utf-8"), files, check=settings.check)
        return Task(folder.name, digest(folder), public, TaskRef(self.name, folder.name, {"path": str(self.options.path)}), verifier)


class FolderVerifier(Verifier):
    """Runs the verify command: exit 0 passed, 77 could not grade, anything else failed.

    The command may write a number in [0, 1] to the file named by LONGREIN_SCORE; exit 0 without one is 1.0, failure 0.0.
    """

    name: ClassVar[str] = "folder"
    contract: ClassVar[str | None] = "longrein.tasks.contract:FolderContract"

    async def grade(self, hidden: Mapping[str, Any], workspace: Path) -> Verdict:
        """Grade `workspace` with the hidden folder beside it."""
        folder = Path(hidden["folder"]) / "hidden"
        limits = evolve(LIMITS, memory_mb=hidden["memory_mb"])
        beside = folder if folder.is_dir() else None
        return (await run_command(hidden["verify"], workspace, hidden=beside, timeout_s=hidden["timeout_s"], limits=limits)).verdict()


def digest(folder: Path) -> str:
    """Return sha256 (hex) over the names and contents of all files below `folder`."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        total.update(f"{path.relative_to(folder)}\0{len(content)}\0".encode() + content)
    return total.hexdigest()


def _settings(folder: Path) -> TaskFile:
    path = folder / "task.toml"
    if not path.is_file():
        return TaskFile()
    try:
        return structure(TaskFile, tomllib.loads(path.read_text(encoding="utf-8")), where=f"{folder.name}/task.toml")
    except ValueError as error:
        raise TaskError(f"{folder.name}/task.toml: {error}") from error


def _command(folder: Path, settings: TaskFile) -> str | None:
    if settings.verify is None and (folder / "verify.sh").is_file():
        return (folder / "verify.sh").read_text(encoding="utf-8")
    return settings.verify


def _verifier(folder: Path, settings: TaskFile) -> str:
    command = _command(folder, settings)
    if settings.verifier is not None and command is not None:
        raise TaskError(f"{folder.name} has a verify command and names the verifier {settings.verifier!r}; it takes one of them")
    if settings.verifier == FolderVerifier.name:
        raise TaskError(f'{folder.name} names the verifier "folder", which runs a verify command; give it as verify = "..."')
    if settings.verifier is not None:
        return settings.verifier
    if command is not None:
        return "folder"
    if any((folder / "hidden").glob("test_*.py")):
        return "pytest"
    raise TaskError(
        f'{folder.name} has no verify command; put verify = "..." in task.toml, or add verify.sh, or test_*.py in hidden/ '
        "(graded by the verifier of longrein-pytest)"
    )


def _texts(folder: Path) -> dict[str, str]:
    """Return path to text of all files below `folder`, sorted."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    try:
        return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in paths}
    except UnicodeDecodeError as error:
        raise TaskError(f"{folder.parent.name}/{folder.name} holds a file that is not UTF-8 text: {error}") from error
