"""The supervisor: ends every process of a session and nothing more. No security boundary: agents can read what you can."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from longrein.agent import LaunchPlan
from longrein.errors import SandboxError
from longrein.sandbox import syscalls
from longrein.sandbox.base import Place, RunningSession, Sandbox
from longrein.sandbox.bwrap import environment, interpreter
from longrein.sandbox.cgroup import ControlGroups, limited_by
from longrein.sandbox.folders import remove, write_files
from longrein.sandbox.limits import WATCHED
from longrein.sandbox.process import INIT, running, start_tree
from longrein.toolchain.spec import InstalledToolchain

ROOT = Path("/tmp")
"""Not the user's temporary folder: the paths stand in agents' prompts and should not differ between machines."""


class SupervisorSandbox(Sandbox):
    """Fixed folders, a cleared environment and a process that ends the whole tree, also when the engine dies."""

    name: ClassVar[str] = "supervisor"
    is_security_boundary: ClassVar[bool] = False
    shares_network: ClassVar[bool] = True
    writable: ClassVar[tuple[str, ...]] = ("/tmp/longrein-SLOT/work", "/tmp/longrein-SLOT/home", "/tmp/longrein-SLOT/tmp")

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._held: dict[int, tuple[Path, int]] = {}
        self._groups = ControlGroups.find(self.runtime, self.limits)
        self._in_force = _protections(grouped=self._groups is not None)
        sweep_slots()

    @classmethod
    def unavailable(cls) -> str | None:
        """Return a reason where orphans cannot be followed."""
        return None if sys.platform == "linux" else "the supervisor needs Linux (orphaned processes cannot be followed elsewhere)"

    @classmethod
    def protections(cls) -> Mapping[str, str]:
        """Return what is in force here, and by which means."""
        return _protections(grouped=ControlGroups.usable())

    def place(self, slot: int) -> Place:
        """Return the place of `slot`: the folder of that number, or the next one that no other engine holds."""
        folder = self._hold(slot)
        work, home = PurePosixPath(folder / "work"), PurePosixPath(folder / "home")
        url = f"http://127.0.0.1:{self.capture_port}"
        python, tools = PurePosixPath(folder / "bin/python3"), PurePosixPath(self.tools_socket(slot))
        return Place(workdir=work, home=home, base_url=url, python=python, tools=tools)

    async def start(self, slot: int, plan: LaunchPlan, *, files: Mapping[str, str], toolchain: InstalledToolchain | None) -> RunningSession:
        """Start `plan` below a supervisor; see `Sandbox.start`."""
        folder, group = self._hold(slot), self._groups.make(slot) if self._groups else None

        def clean_up() -> None:
            if group:
                group.remove()
            self._release(slot)

        try:
            await asyncio.to_thread(_fill, folder, {**files, **plan.files})
            init = {
                "argv": list(plan.argv),
                "workdir": str(folder / "work"),
                "folders": [str(folder / name) for name in ("work", "home", "tmp")],
                "guard": True,
                "remove": str(folder),
            }
            env = environment(plan, PurePosixPath(folder / "home"), PurePosixPath(folder / "bin"), PurePosixPath(folder / "tmp"))
            argv = [*(group.enter() if group else ()), str(interpreter()), "-I", "-S", str(INIT)]
            tree = await start_tree(argv, init, env=env, limits=self.limits)
        except BaseException:
            clean_up()
            raise
        record = {"backend": self.name, "interpreter": str(interpreter()), "in_force": self._in_force}
        return running(tree, workspace=folder / "work", record=record, clean_up=clean_up)

    def _hold(self, slot: int) -> Path:
        if slot not in self._held:
            self._held[slot] = next(held for number in range(slot, slot + 1000) if (held := _lock(ROOT / f"longrein-{number}")))
        return self._held[slot][0]

    def _release(self, slot: int) -> None:
        _give_back(*self._held.pop(slot))


def _protections(*, grouped: bool) -> Mapping[str, str]:
    return {"network": "not in force", **limited_by(grouped=grouped), "disk": WATCHED, "system calls": syscalls.state()}


def sweep_slots() -> None:
    """Remove the slot folders of engines that are dead."""
    for folder in ROOT.glob("longrein-*"):
        if folder.name.removeprefix("longrein-").isdigit() and (held := _lock(folder)):
            _give_back(*held)


def _give_back(folder: Path, lock: int) -> None:
    """Remove a slot. Another engine may take it as soon as the lock's file is gone: what is in it then stays (seen)."""
    _empty(folder)
    with suppress(OSError):
        (folder / "lock").unlink()
        folder.rmdir()
    os.close(lock)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.name != "lock":
            remove(entry)


def _lock(folder: Path) -> tuple[Path, int] | None:
    """Take `folder` for this process, or return None where another process or user has it."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return None
        lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The folder may have been removed by its last holder between our open and our lock.
        if os.fstat(lock).st_ino == (folder / "lock").stat().st_ino:
            return folder, lock
    except OSError:
        pass
    os.close(lock)
    return None


def _fill(folder: Path, files: Mapping[str, str]) -> None:
    """Empty the slot but for its lock, and place the files."""
    try:
        _empty(folder)
        for name in ("work", "home", "bin", "tmp"):
            (folder / name).mkdir()
        for name in ("python", "python3"):
            (folder / "bin" / name).symlink_to(interpreter())
    except OSError as error:
        raise SandboxError(f"cannot prepare {folder}: {error}") from error
    inside = {PurePosixPath(folder / name): folder / name for name in ("work", "home")}
    write_files(files, inside, PurePosixPath(folder / "work"))
