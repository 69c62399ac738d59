"""Run a command on a copy of a workspace, in a sandbox; it may execute code that an agent wrote."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from attrs import frozen

from longrein.errors import SandboxError
from longrein.model import Verdict
from longrein.sandbox.bwrap import interpreter, kernel
from longrein.sandbox.folders import read_left, remove
from longrein.sandbox.limits import SandboxLimits
from longrein.sandbox.process import INIT, Tree, start_tree

COULD_NOT_GRADE = 77
"""Exit code by which a command says that it could not do its job (as in automake)."""
LIMITS = SandboxLimits(output_kb=16)


@frozen
class CommandResult:
    """What the command said."""

    exit_code: int | None
    """None when the time was over."""
    score: float | None
    output: str
    """Tail of its output; untrusted."""
    isolation: str
    """"bwrap" or "processes"."""
    trouble: str = ""
    """Why nothing can be said about the workspace; empty when something can."""

    def verdict(self) -> Verdict:
        """Return the verdict: exit 0 passed, 77 could not grade, anything else failed; a written score counts instead of 1 or 0."""
        details = {"exit_code": self.exit_code, "output": self.output, "isolation": self.isolation}
        if self.trouble:
            return Verdict.unscorable(self.trouble, **details)
        if self.exit_code is None:
            return Verdict("failed", 0.0, "the command did not end within its time", details=details)
        passed = self.exit_code == 0
        score = float(passed) if self.score is None else self.score
        return Verdict("passed" if passed else "failed", score, f"the command ended with exit code {self.exit_code}", details=details)


async def run_command(
    command: str, workspace: Path, *, hidden: Path | None, timeout_s: float, limits: SandboxLimits = LIMITS
) -> CommandResult:
    """Run a shell command in a copy of `workspace`; nothing that it starts outlives it.

    Args:
        command: run by sh with the copy as working folder. LONGREIN_HIDDEN names the copy of `hidden` (also `../hidden`),
            LONGREIN_SCORE the file that takes a score, PYTHON this interpreter.
        workspace: not changed.
        hidden: a folder for the command, or None.
        timeout_s: wall time.
        limits: of its process tree and output.
    """
    root = Path(tempfile.mkdtemp(prefix="longrein-verify-"))
    try:
        await asyncio.to_thread(_fill, root, workspace, hidden)
        return await _run(command, root, timeout_s, limits)
    except (OSError, shutil.Error, SandboxError) as error:
        return CommandResult(None, None, "", "", trouble=f"cannot run the command: {error}")
    finally:
        await asyncio.to_thread(remove, root)


def _fill(root: Path, workspace: Path, hidden: Path | None) -> None:
    shutil.copytree(workspace, root / "workspace", symlinks=True)
    if hidden is not None:
        shutil.copytree(hidden, root / "hidden")


async def _run(command: str, root: Path, timeout_s: float, limits: SandboxLimits) -> CommandResult:
    isolated = await asyncio.to_thread(bwrap_works)
    tree = await start_command(
        ["sh", "-c", f"exec 2>&1\n{command}"],
        prefix=bwrap(root) if isolated else [],
        env=_environment(root),
        workdir=root / "workspace",
        limits=limits,
    )
    output = await finish(tree, timeout_s)
    exit_code = tree.exit_code
    score, trouble = _score(root / "score")
    if exit_code in (COULD_NOT_GRADE, 126, 127):
        trouble = f"the command could not grade (exit code {exit_code}): {output[-300:].strip()}"
    elif tree.ended_by == "killed":
        trouble = "the command was killed from outside"
    return CommandResult(exit_code, score, output, "bwrap" if isolated else "processes", trouble)


async def start_command(
    argv: Sequence[str],
    *,
    prefix: Sequence[str],
    env: Mapping[str, str],
    workdir: Path,
    limits: SandboxLimits,
    pass_fds: Sequence[int] = (),
) -> Tree:
    """Start a program below the first process of sessions, which enforces the limits and ends the whole tree.

    Args:
        argv: the program.
        prefix: what makes the sandbox, such as `bwrap(root)`; empty for none.
        env: the whole environment.
        workdir: its working folder, as it is named inside.
        limits: of the process tree.
        pass_fds: descriptors that the program inherits.

    Raises:
        SandboxError: it could not be started.
    """
    plan = {"argv": list(argv), "workdir": str(workdir)}
    head = [*prefix, str(interpreter()), "-I", "-S", str(INIT)]
    return await start_tree(head, plan, env=env, limits=limits, pass_fds=pass_fds)


async def finish(tree: Tree, timeout_s: float) -> str:
    """Wait for the end of a tree, which comes after `timeout_s` at the latest, and return the tail of its output."""
    ended = asyncio.ensure_future(tree.ended())
    try:
        await asyncio.wait({ended}, timeout=timeout_s)
    finally:  # also when this grade is cancelled
        if not ended.done():
            tree.stop("timeout")
        stdout, stderr = await asyncio.shield(ended)
    return (stdout + stderr).decode("utf-8", "replace")


def _environment(root: Path) -> Mapping[str, str]:
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(root),
        "LANG": "C.UTF-8",
        "PYTHON": sys.executable,
        "PYTHONDONTWRITEBYTECODE": "1",
        "LONGREIN_HIDDEN": str(root / "hidden"),
        "LONGREIN_SCORE": str(root / "score"),
    }


def _score(path: Path) -> tuple[float | None, str]:
    try:
        content = read_left(path, 100)
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"the command left a score that cannot be read: {error.strerror}"
    if content is None:
        return None, "the command left a score that cannot be read: it is no file"
    text = content.decode("utf-8", "replace").strip()
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    return (score, "") if 0.0 <= score <= 1.0 else (None, f"the command wrote the score {text!r}, which is no number in [0, 1]")


def bwrap(root: Path) -> Sequence[str]:
    """Return the prefix that runs a program without network, seeing the system read-only and `root` writable."""
    return [
        "bwrap",
        "--unshare-all",
        "--as-pid-1",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        *kernel(root / "dev"),
        "--bind",
        str(root),
        str(root),
        "--",
    ]


@cache
def bwrap_works() -> bool:
    """Return whether bubblewrap can be used here (really tried)."""
    with tempfile.TemporaryDirectory(prefix="longrein-verify-") as root:
        try:
            return subprocess.run([*bwrap(Path(root)), "true"], capture_output=True, timeout=60, check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
