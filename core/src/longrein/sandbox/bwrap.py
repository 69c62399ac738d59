"""Bubblewrap: constant paths, a read-only system, no network but a relay on loopback, nothing outlives the engine."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from longrein.agent import LaunchPlan
from longrein.errors import SandboxError
from longrein.sandbox import syscalls
from longrein.sandbox.base import Place, RunningSession, Sandbox
from longrein.sandbox.cgroup import ControlGroups, limited_by
from longrein.sandbox.folders import write_files
from longrein.sandbox.limits import WATCHED, SandboxLimits
from longrein.sandbox.process import INIT, running, start_tree
from longrein.toolchain.spec import InstalledToolchain

WORK, HOME, OWN = PurePosixPath("/work"), PurePosixPath("/home/agent"), PurePosixPath("/opt/longrein")
PORT = 7717
ETC = ("alternatives", "ca-certificates", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "mime.types", "pki", "ssl")
IDENTITY = {
    "passwd": "agent:x:1000:1000::/home/agent:/bin/sh\n",
    "group": "agent:x:1000:\n",
    "hosts": "127.0.0.1 localhost\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
KERNEL = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "pressure", "acpi", "scsi", "fs", "mtrr"))
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
NOBODY = 65534
SHARED_MB = 64
"""Size of /dev/shm, as container engines have it."""
SYSCTL = Path("/proc/sys")
SWITCHES = (
    ("kernel/unprivileged_userns_clone", "0", "unprivileged user namespaces are off"),
    ("user/max_user_namespaces", "0", "user namespaces are off"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "AppArmor refuses unprivileged user namespaces to programs without a profile"),
)
"""File below SYSCTL, the value with which bubblewrap does not work, and what that means."""


class BubblewrapSandbox(Sandbox):
    """Linux namespaces through bubblewrap. A session's files are in memory of its own: no folder of the host is writable in it."""

    name: ClassVar[str] = "bwrap"
    is_security_boundary: ClassVar[bool] = True
    shares_network: ClassVar[bool] = False
    writable: ClassVar[tuple[str, ...]] = (str(WORK), str(HOME), "/tmp", "/dev/shm")
    shows_workdir_twice: ClassVar[bool] = True

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._groups = ControlGroups.find(self.runtime, self.limits)
        self._in_force = _protections(grouped=self._groups is not None)
        self._etc = self.runtime / "etc"

    @classmethod
    def unavailable(cls) -> str | None:
        """Start a real sandbox once; return why it does not work and how to mend it."""
        if sys.platform != "linux":
            return "bubblewrap needs Linux"
        program = shutil.which("bwrap")
        if program is None:
            return "bubblewrap is not installed (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
        with tempfile.TemporaryDirectory(prefix="lr-") as folder, filter_file() as filtered:
            argv = [
                program,
                *system(Path(folder)),
                *_folders(SandboxLimits()),
                *_filter(filtered),
                str(interpreter()),
                "-IS",
                "-c",
                "pass",
            ]
            keep = (filtered,) if filtered is not None else ()
            try:
                tried = subprocess.run(argv, env={}, pass_fds=keep, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"bubblewrap cannot be run: {error}"
        return None if tried.returncode == 0 else _why(tried.stderr.decode(errors="replace").strip()[-300:])

    @classmethod
    def protections(cls) -> Mapping[str, str]:
        """Return what is in force here, and by which means."""
        return _protections(grouped=ControlGroups.usable())

    def place(self, slot: int) -> Place:
        """Return the constant place."""
        return Place(workdir=WORK, home=HOME, base_url=f"http://127.0.0.1:{PORT}", python=OWN / "bin/python3", tools=OWN / "tools")

    async def start(self, slot: int, plan: LaunchPlan, *, files: Mapping[str, str], toolchain: InstalledToolchain | None) -> RunningSession:
        """Start `plan` in namespaces of its own; see `Sandbox.start`."""
        group = self._groups.make(slot) if self._groups else None

        def fill(folders: Sequence[Path]) -> None:
            write_files({**files, **plan.files}, dict(zip((WORK, HOME), folders, strict=True)), WORK)

        init = {
            "argv": list(plan.argv),
            "workdir": str(WORK),
            "folders": list(self.writable),
            "hand_over": [str(WORK), str(HOME)],
            "relay_port": PORT,
            "relay_socket": str(OWN / "policy"),
        }
        env = environment(plan, HOME, OWN / "bin", PurePosixPath("/tmp"))
        try:
            with filter_file() as filtered:
                argv = [*(group.enter() if group else ()), *self._argv(slot, read_only(plan, toolchain), filtered, plan.workdir_too)]
                keep = (filtered,) if filtered is not None else ()
                tree = await start_tree(argv, init, env=env, limits=self.limits, fill=fill, pass_fds=keep)
        except BaseException:
            if group:
                await asyncio.to_thread(group.remove)
            raise
        record = {"backend": self.name, "interpreter": str(interpreter()), "in_force": self._in_force}
        workspace = Path(f"/proc/self/fd/{tree.folders[0]}")
        return running(tree, workspace=workspace, record=record, clean_up=group.remove if group else lambda: None)

    def _argv(self, slot: int, shown: Mapping[Path, PurePosixPath], filtered: int | None, workdir_too: str | None) -> list[str]:
        binds = {**self.doors(slot, OWN), INIT: OWN / "init.py", **shown}
        return [
            shutil.which("bwrap") or "bwrap",
            *system(self._etc),
            *_folders(self.limits),
            *(part for outside, inside in binds.items() for part in ("--ro-bind", str(outside), str(inside))),
            *(("--symlink", str(WORK), workdir_too) if workdir_too else ()),
            *("--remount-ro", "/", "--chdir", str(WORK)),
            *_filter(filtered),
            *(str(interpreter()), "-I", "-S", str(OWN / "init.py")),
        ]


def _protections(*, grouped: bool) -> Mapping[str, str]:
    return {
        "network": "namespace with loopback only",
        **limited_by(grouped=grouped),
        "disk": "file systems in memory of fixed size" if _can_size() else WATCHED,
        "system calls": syscalls.state(),
    }


def interpreter() -> Path:
    """Return the base interpreter of the running Python: a venv's own one does not start where its base is not bound."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    if not base.exists():
        raise SandboxError(f"the interpreter {base} of this Python does not exist")
    return base


def environment(plan: LaunchPlan, home: PurePosixPath, programs: PurePosixPath, temporary: PurePosixPath) -> dict[str, str]:
    """Return the whole environment of a session; nothing of the engine's own gets in."""
    path = ":".join((*plan.path, str(programs), "/usr/local/bin", "/usr/bin", "/bin"))
    return {**plan.env, "HOME": str(home), "PATH": path, "TMPDIR": str(temporary), "LANG": "C.UTF-8"}


def _identity(etc: Path) -> None:
    """Write the few files of /etc that are the same in every session, once: sessions that run have them bound."""
    etc.mkdir(exist_ok=True)
    for name, text in IDENTITY.items():
        if not (etc / name).exists():
            (etc / name).write_text(text)


def _own_devices(folder: Path) -> list[Path]:
    """Return device nodes that are nobody's, for a longrein that runs as root: the machine's own are root's, and so is a session
    outside, which could change their mode (seen)."""
    if os.geteuid() != 0:
        return []
    made = [folder / name for name in DEVICES]
    if folder.exists():
        return [path for path in made if path.exists()]
    folder.mkdir()
    try:
        for path in made:
            os.mknod(path, stat.S_IFCHR | 0o666, Path("/dev", path.name).stat().st_rdev)
            path.chmod(0o666)
            os.chown(path, NOBODY, NOBODY)
        made[0].open("rb").close()
    except OSError:  # a container that may not make nodes, or a temporary folder on which there are none
        shutil.rmtree(folder)
        return []
    return made


def system(etc: Path) -> list[str]:
    """Return the bwrap arguments of a place that sees the system and nothing of the user; `etc` is filled with identity files.

    Nothing in it is writable yet: see `memory`.
    """
    _identity(etc)
    arguments = [
        *("--unshare-all", "--unshare-user", "--as-pid-1", "--die-with-parent", "--new-session"),
        *("--hostname", "longrein", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"),
        *("--ro-bind", "/usr", "/usr"),
    ]
    for name in ("/bin", "/sbin", *sorted(str(path) for path in Path("/").glob("lib*"))):
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            arguments += ["--ro-bind", name, name]
    for name in ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name in IDENTITY:
        arguments += ["--ro-bind", str(etc / name), f"/etc/{name}"]
    base = Path(sys.base_prefix)
    if not base.is_relative_to("/usr"):
        arguments += ["--ro-bind", str(base), str(base)]
    if Path("/usr/src").is_dir():  # where container images keep an application, and with it its repository and runs
        arguments += ["--tmpfs", "/usr/src", "--remount-ro", "/usr/src"]
    for name in ("python", "python3"):
        arguments += ["--symlink", str(interpreter()), str(OWN / "bin" / name)]
    return [*arguments, *kernel(etc / "dev")]


def kernel(devices: Path) -> list[str]:
    """Return the arguments for /proc and /dev; `devices` is a folder for device nodes, made where it is needed.

    As root, a session is root outside too, whom the kernel lets set its switches without any capability. bubblewrap covers these
    only where their folder is writable, which it is not (seen: a session set the machine's /proc/sys/kernel/core_pattern).
    """
    arguments = ["--proc", "/proc", "--dev", "/dev"]
    for name in KERNEL:
        arguments += ["--ro-bind-try", name, name]
    for path in _own_devices(devices):
        arguments += ["--dev-bind", str(path), f"/dev/{path.name}"]
    return arguments


def _folders(limits: SandboxLimits) -> list[str]:
    """Return the arguments for what a session can write to."""
    return memory({**dict.fromkeys((str(WORK), str(HOME), "/tmp"), limits.disk_mb), "/dev/shm": min(SHARED_MB, limits.disk_mb)})


def memory(sizes: Mapping[str, int]) -> list[str]:
    """Return the arguments for empty file systems in memory, path to MiB; the folder of devices is read-only but for those."""
    arguments = []
    for folder, size_mb in sizes.items():
        arguments += [*(["--size", str(size_mb << 20)] if _can_size() else []), "--tmpfs", folder]
    return [*arguments, "--remount-ro", "/dev"]


@cache
def _can_size() -> bool:
    """Return whether this bubblewrap bounds file systems in memory by itself (0.7 and newer)."""
    try:
        return "--size" in subprocess.run(["bwrap", "--help"], capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def filter_file() -> Iterator[int | None]:
    """Yield a descriptor with the filter of system calls, None where there is none."""
    if (filtered := syscalls.program()) is None:
        yield None
        return
    with tempfile.TemporaryFile() as file:
        file.write(filtered)
        file.seek(0)
        yield file.fileno()


def _filter(descriptor: int | None) -> list[str]:
    return [] if descriptor is None else ["--seccomp", str(descriptor)]


def read_only(plan: LaunchPlan, toolchain: InstalledToolchain | None) -> dict[Path, PurePosixPath]:
    """Return what of the host a session reads besides the system, and where it stands inside: every sandbox has /usr."""
    paths = (*((toolchain.folder, *toolchain.binds) if toolchain else ()), *plan.read_only)
    return {path: PurePosixPath(path) for path in paths if not path.is_relative_to("/usr")}


def _why(complaint: str) -> str:
    """Return why bubblewrap cannot make a sandbox: the switch that is off, where one is, and how to turn it."""
    for name, off, what in SWITCHES:
        try:
            value = (SYSCTL / name).read_text().strip()
        except OSError:
            continue
        if value == off:
            mend = "0" if off == "1" else "1" if name.endswith("clone") else "10000"
            key = name.replace("/", ".")
            return f"bubblewrap cannot make a sandbox here: {what} ({key} is {off}; as root: sysctl -w {key}={mend}). It said: {complaint}"
    return (
        f"bubblewrap cannot make a sandbox here: {complaint or 'it gave no reason'} (in a container: it needs user namespaces and mounts, "
        "for example docker run --security-opt seccomp=unconfined --security-opt apparmor=unconfined)"
    )
