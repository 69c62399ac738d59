"""Run a task's script where it finds the paths that Harbor promises: its working folder, /tests, /solution, /logs."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from attrs import frozen

from longrein.errors import SandboxError
from longrein.sandbox.bwrap import kernel
from longrein.sandbox.folders import remove
from longrein.sandbox.limits import SandboxLimits
from longrein.sandbox.process import INIT
from longrein.tasks.command import bwrap_works, finish, start_command

TMP = Path("/tmp")


@frozen
class Finished:
    """A script that was run. The folders are there until the context ends, and programs of an agent may have written them."""

    exit_code: int | None
    """None when its time was over, or it was killed."""
    ended_by: str
    output: str
    workspace: Path
    logs: Path
    """/logs/verifier"""


@asynccontextmanager
async def run_script(
    script: str, workspace: Path, *, workdir: str, folders: Mapping[str, Path], timeout_s: float, limits: SandboxLimits
) -> AsyncIterator[Finished]:
    """Run a script of a task in a sandbox without network; nothing that it starts outlives it.

    Args:
        script: its path inside, such as /tests/test.sh.
        workspace: copied; not changed.
        workdir: where the copy stands inside.
        folders: path inside to a folder that is copied there.
        timeout_s: wall time.
        limits: of its process tree and output.

    Raises:
        SandboxError: the sandbox cannot be made.
        OSError: a folder cannot be copied.
    """
    if not await asyncio.to_thread(bwrap_works):
        raise SandboxError("scripts of Harbor tasks need bubblewrap, which alone can show them their paths; see `longrein doctor`")
    root = Path(tempfile.mkdtemp(prefix="longrein-verify-"))
    try:
        shown = {workdir: root / "workspace", "/logs": root / "logs", "/logs/verifier": root / "verifier"}
        shown |= {inside: root / str(number) for number, inside in enumerate(folders)}
        await asyncio.to_thread(_fill, root, {shown[workdir]: workspace, **{shown[inside]: path for inside, path in folders.items()}})
        tree = await start_command(
            ["bash", "-c", f"exec 2>&1; chmod +x {script}; {script}"],
            prefix=_bwrap(root, shown),
            env={
                "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                "HOME": str(TMP),
                "LANG": "C.UTF-8",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            workdir=Path(workdir),
            limits=limits,
        )
        output = await finish(tree, timeout_s)
        yield Finished(tree.exit_code, tree.ended_by, output, root / "workspace", root / "verifier")
    finally:
        await asyncio.to_thread(remove, root)


def _fill(root: Path, copies: Mapping[Path, Path]) -> None:
    for name in ("logs", "verifier", "tmp"):
        (root / name).mkdir()
    for target, source in copies.items():
        shutil.copytree(source, target, symlinks=True)


def _bwrap(root: Path, shown: Mapping[str, Path]) -> list[str]:
    """Return the prefix that sees the system read-only and `shown` writable; the root is a folder of its own, so that paths can be made."""
    arguments = ["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent"]
    for entry in sorted(Path("/").iterdir()):
        if entry.is_symlink():
            arguments += ["--symlink", str(entry.readlink()), str(entry)]
        elif entry.is_dir() and entry.name not in ("dev", "proc", "tmp"):
            arguments += ["--ro-bind-try", str(entry), str(entry)]
    ours = any(Path(path).is_relative_to(TMP) for path in (sys.prefix, sys.base_prefix, INIT))
    arguments += ["--ro-bind", str(TMP), str(TMP)] if ours else ["--bind", str(root / "tmp"), str(TMP)]
    arguments += kernel(root / "dev")
    for inside, outside in shown.items():
        arguments += ["--bind", str(outside), inside]
    return [*arguments, "--remount-ro", "/", "--"]
