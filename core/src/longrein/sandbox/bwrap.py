"""Bubblewrap: constant paths, a read-only system, no network but a relay on loopback, nothing outlives the engine."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import ClassVar

from longrein.agent import LaunchPlan
from longrein.errors import SandboxError
from longrein.sandbox.base import Place, RunningSession, Sandbox
from longrein.sandbox.folders import remove, write_files
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


class BubblewrapSandbox(Sandbox):
    """Linux namespaces through bubblewrap."""

    name: ClassVar[str] = "bwrap"
    is_security_boundary: ClassVar[bool] = True
    shares_network: ClassVar[bool] = False

    @classmethod
    def unavailable(cls) -> str | None:
        """Start a real sandbox once; return why it does not work and how to mend it."""
        if sys.platform != "linux":
            return "bubblewrap needs Linux"
        program = shutil.which("bwrap")
        if program is None:
            return "bubblewrap is not installed (Debian, Ubuntu: apt-get install bubblewrap; Fedora: dnf install bubblewrap)"
        with tempfile.TemporaryDirectory(prefix="lr-") as folder:
            argv = [program, *system(Path(folder)), str(interpreter()), "-I", "-S", "-c", "pass"]
            try:
                tried = subprocess.run(argv, env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                return f"bubblewrap cannot be run: {error}"
        if tried.returncode == 0:
            return None
        return (
            f"bubblewrap cannot make a sandbox here: {tried.stderr.strip()[-300:]} (user namespaces may be switched off: see "
            "sysctl kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns, user.max_user_namespaces)"
        )

    def place(self, slot: int) -> Place:
        """Return the constant place."""
        return Place(workdir=WORK, home=HOME, base_url=f"http://127.0.0.1:{PORT}", python=OWN / "bin/python3")

    async def start(self, slot: int, plan: LaunchPlan, *, files: Mapping[str, str], toolchain: InstalledToolchain | None) -> RunningSession:
        """Start `plan` in namespaces of its own; see `Sandbox.start`."""
        folder = Path(tempfile.mkdtemp(prefix="s", dir=self.runtime))
        try:
            work, home = folder / "work", folder / "home"
            await asyncio.to_thread(self._fill, folder, {**files, **plan.files})
            argv = [
                shutil.which("bwrap") or "bwrap",
                *system(folder / "etc"),
                "--bind",
                str(work),
                str(WORK),
                "--bind",
                str(home),
                str(HOME),
                "--ro-bind",
                str(self.capture_socket),
                str(OWN / "policy"),
                "--ro-bind",
                str(INIT),
                str(OWN / "init.py"),
                *_toolchain(toolchain),
                "--remount-ro",
                "/",
                "--chdir",
                str(WORK),
                str(interpreter()),
                "-I",
                "-S",
                str(OWN / "init.py"),
            ]
            init = {"argv": list(plan.argv), "workdir": str(WORK), "remove": None, "relay_port": PORT, "relay_socket": str(OWN / "policy")}
            env = environment(plan, HOME, OWN / "bin", PurePosixPath("/tmp"))
            tree = await start_tree(argv, init, env=env, limits=self.limits, kill_head=True)
        except BaseException:
            remove(folder)
            raise
        record = {"backend": self.name, "interpreter": str(interpreter())}
        return running(tree, workspace=work, record=record, clean_up=lambda: remove(folder))

    def _fill(self, folder: Path, files: Mapping[str, str]) -> None:
        roots = {WORK: folder / "work", HOME: folder / "home"}
        for root in roots.values():
            root.mkdir()
        write_files(files, roots, WORK)


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


def system(etc: Path) -> list[str]:
    """Return the bwrap arguments of a place that sees the system and nothing of the user; `etc` is filled with identity files."""
    etc.mkdir(exist_ok=True)
    arguments = [
        "--unshare-all",
        "--unshare-user",
        "--as-pid-1",
        "--die-with-parent",
        "--new-session",
        "--hostname",
        "longrein",
        "--uid",
        "1000",
        "--gid",
        "1000",
        "--cap-drop",
        "ALL",
        "--ro-bind",
        "/usr",
        "/usr",
    ]
    for name in ("/bin", "/sbin", *sorted(str(path) for path in Path("/").glob("lib*"))):
        path = Path(name)
        if path.is_symlink():
            arguments += ["--symlink", str(path.readlink()), name]
        elif path.is_dir():
            arguments += ["--ro-bind", name, name]
    for name in ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for name, text in IDENTITY.items():
        (etc / name).write_text(text)
        arguments += ["--ro-bind", str(etc / name), f"/etc/{name}"]
    base = Path(sys.base_prefix)
    if not base.is_relative_to("/usr"):
        arguments += ["--ro-bind", str(base), str(base)]
    for name in ("python", "python3"):
        arguments += ["--symlink", str(interpreter()), str(OWN / "bin" / name)]
    return [*arguments, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]


def _toolchain(toolchain: InstalledToolchain | None) -> list[str]:
    folders = (toolchain.folder, *toolchain.binds) if toolchain else ()
    return [part for folder in folders if not folder.is_relative_to("/usr") for part in ("--ro-bind", str(folder), str(folder))]
