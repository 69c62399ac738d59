"""Run a verify command on a copy of a workspace; it may execute code that an agent wrote."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from attrs import frozen

OUTPUT_KB = 16
COULD_NOT_GRADE = 77
"""Exit code by which a verify command says that it could not do its job (as in automake)."""


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


def run_command(command: str, workspace: Path, *, hidden: Path | None, timeout_s: float) -> CommandResult:
    """Run a shell command in a copy of `workspace`; nothing that it starts outlives it.

    Args:
        command: run by sh with the copy as working folder. LONGREIN_HIDDEN names the copy of `hidden` (also `../hidden`),
            LONGREIN_SCORE the file that takes a score, PYTHON this interpreter.
    """
    with tempfile.TemporaryDirectory(prefix="longrein-verify-", ignore_cleanup_errors=True) as place:
        root = Path(place)
        try:
            shutil.copytree(workspace, root / "workspace", symlinks=True)
            if hidden is not None:
                shutil.copytree(hidden, root / "hidden")
            return _run(command, root, timeout_s)
        except (OSError, shutil.Error) as error:
            return CommandResult(None, None, "", "", trouble=f"cannot run the verify command: {error}")


def _run(command: str, root: Path, timeout_s: float) -> CommandResult:
    isolation = "bwrap" if bwrap_works() else "processes"
    prefix = bwrap(root) if isolation == "bwrap" else []
    with (root / "output").open("w+b") as output:
        process = subprocess.Popen(
            [*prefix, "sh", "-c", command],
            cwd=root / "workspace",
            env=_environment(root),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            exit_code: int | None = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            exit_code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(max(0, output.seek(0, os.SEEK_END) - (OUTPUT_KB << 10)))
        text = output.read(OUTPUT_KB << 10).decode("utf-8", "replace")
    score, trouble = _score(root / "score")
    if exit_code in (COULD_NOT_GRADE, 126, 127):
        trouble = f"the verify command could not grade (exit code {exit_code}): {text[-300:].strip()}"
    return CommandResult(exit_code, score, text, isolation, trouble)


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
        text = path.read_text(encoding="utf-8", errors="replace")[:100].strip()
    except FileNotFoundError:
        return None, ""
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    return (score, "") if 0.0 <= score <= 1.0 else (None, f"the verify command wrote the score {text!r}, which is no number in [0, 1]")


def bwrap(root: Path) -> Sequence[str]:
    """Return the prefix that runs a command without network, seeing the system read-only and `root` writable."""
    return [
        "bwrap",
        "--unshare-all",
        "--die-with-parent",
        "--ro-bind",
        "/",
        "/",
        "--dev",
        "/dev",
        "--proc",
        "/proc",
        "--bind",
        str(root),
        str(root),
        "--chdir",
        str(root / "workspace"),
        "--",
    ]


@cache
def bwrap_works() -> bool:
    """Return whether bubblewrap can be used here (really tried)."""
    with tempfile.TemporaryDirectory(prefix="longrein-verify-") as root:
        Path(root, "workspace").mkdir()
        try:
            return subprocess.run([*bwrap(Path(root)), "true"], capture_output=True, timeout=10, check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False
