"""Limits of whole process trees with cgroup v2, where this process may make groups (under systemd: in a scope that is delegated)."""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from attrs import frozen

from longrein.errors import SandboxError
from longrein.sandbox.limits import WATCHED, SandboxLimits

CONTROLLERS = {"memory", "pids"}
PROC = Path("/proc/self")
LINK = "cgroup"
"""Name, in a run's private folder, of the link to its group: the janitor removes the group too."""


def limited_by(*, grouped: bool) -> dict[str, str]:
    """Return by which means the limits hold that a control group can hold."""
    return {"memory": "cgroup v2", "processes": "cgroup v2"} if grouped else {"memory": f"rlimit, {WATCHED}", "processes": WATCHED}


@frozen
class ControlGroup:
    """The group of one session."""

    folder: Path

    def enter(self) -> list[str]:
        """Return a prefix that puts a command, and all that it starts, into the group."""
        return ["sh", "-c", 'echo 0 > "$0/cgroup.procs" && exec "$@"', str(self.folder)]

    def remove(self) -> None:
        """Kill what is still in the group, and remove it."""
        with suppress(OSError):
            (self.folder / "cgroup.kill").write_text("1")
        for _ in range(50):
            with suppress(OSError):
                self.folder.rmdir()
                return
            time.sleep(0.02)


@frozen
class ControlGroups:
    """The groups of one run."""

    folder: Path
    limits: SandboxLimits

    @classmethod
    def find(cls, runtime: Path, limits: SandboxLimits) -> ControlGroups | None:
        """Make a group for a run, or return None where that cannot be done."""
        parent = _parent()
        if parent is None:
            return None
        folder = parent / f"longrein-{runtime.name}"
        try:
            folder.mkdir()
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in sorted(CONTROLLERS)))
            (runtime / LINK).symlink_to(folder)
        except OSError:
            return None
        return cls(folder, limits)

    @staticmethod
    def usable() -> bool:
        """Return whether groups can be made here (really tried)."""
        return _parent() is not None

    def make(self, slot: int) -> ControlGroup:
        """Make the group of the session in `slot`.

        Raises:
            SandboxError: the group could not be made.
        """
        group = self.folder / f"s{slot}"
        memory, tasks = self.limits.memory_mb << 20, self.limits.max_threads
        try:
            group.mkdir()
            for name, value in (("memory.max", memory), ("memory.swap.max", 0), ("pids.max", tasks)):
                if (group / name).exists():  # without swap accounting there is no memory.swap.max
                    (group / name).write_text(str(value))
        except OSError as error:
            raise SandboxError(f"cannot make the control group {group}: {error}") from error
        return ControlGroup(group)


def _parent() -> Path | None:
    """Return the nearest group above this process in which it may make limited groups and put processes into them."""
    found = _own()
    if found is None:
        return None
    mount, own = found
    for folder in own.parents if own != mount else ():
        if _may_divide(folder):
            return folder
        if folder == mount:
            break
    return None


def _own() -> tuple[Path, Path] | None:
    """Return where cgroup v2 is mounted and the group of this process in it."""
    try:
        lines = (PROC / "mountinfo").read_text().splitlines()
        own = next(line[3:] for line in (PROC / "cgroup").read_text().splitlines() if line.startswith("0::"))
        mount = next(Path(line.split()[4]) for line in lines if line.partition(" - ")[2].startswith("cgroup2 "))
    except (OSError, StopIteration):
        return None
    return mount, mount / own.lstrip("/")


def _may_divide(folder: Path) -> bool:
    probe = folder / f"longrein-probe-{os.getpid()}"
    try:
        if not set((folder / "cgroup.subtree_control").read_text().split()) >= CONTROLLERS:
            return False
        probe.mkdir()
    except OSError:
        return False
    entered = subprocess.run([*ControlGroup(probe).enter(), "true"], capture_output=True, check=False).returncode == 0
    ControlGroup(probe).remove()
    return entered
