"""The verifier "command": the exit code of a command that a task set gives with its hidden data."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from attrs import field, frozen, validators

from longrein.hookspecs import hookimpl
from longrein.model import Verdict
from longrein.options import structure
from longrein.rollout.grading import unpack
from longrein.sandbox.limits import SandboxLimits
from longrein.tasks.command import run_command
from longrein.verifier import Verifier

positive: Any = validators.gt(0)


@frozen
class CommandTask:
    """The hidden data of a task."""

    command: str
    """A shell command, run in a copy of the workspace."""
    files: Mapping[str, str] = field(factory=dict)
    """Path to text of what only the command sees; it finds them in `../hidden`."""


@frozen
class CommandOptions:
    """Options of the verifier: limits of one grade."""

    timeout_s: float = field(default=60.0, validator=positive)
    """Wall time; a workspace not verified by then has failed."""
    memory_mb: int = field(default=4096, validator=positive)
    max_processes: int = field(default=256, validator=positive)
    """Processes and threads."""
    output_kb: int = field(default=16, validator=positive)
    """Tail of the output that is kept in the record."""


class CommandVerifier(Verifier):
    """Runs the task's command: exit 0 passed, 77 could not grade, anything else failed."""

    name: ClassVar[str] = "command"
    Options: ClassVar[type] = CommandOptions
    contract: ClassVar[str | None] = "longrein_command.contract:CommandContract"
    options: CommandOptions

    async def grade(self, hidden: Mapping[str, Any], workspace: Path) -> Verdict:
        """Grade `workspace`; `hidden` is a table with `command` and `files`."""
        task, options = structure(CommandTask, hidden, where="hidden data"), self.options
        limits = SandboxLimits(options.memory_mb, options.max_processes, output_kb=options.output_kb)
        with tempfile.TemporaryDirectory(prefix="longrein-hidden-") as folder:
            unpack({path: text.encode() for path, text in task.files.items()}, Path(folder))
            result = await run_command(task.command, workspace, hidden=Path(folder), timeout_s=options.timeout_s, limits=limits)
        return result.verdict()


@hookimpl
def longrein_verifiers() -> Sequence[type[Verifier]]:
    """Return the verifier "command"."""
    return [CommandVerifier]
