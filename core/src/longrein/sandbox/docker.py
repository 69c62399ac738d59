"""Docker: the same session in a container, for machines where an engine runs and bubblewrap does not."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from attrs import frozen

from longrein.agent import LaunchPlan
from longrein.errors import SandboxError
from longrein.sandbox.base import Place, RunningSession, Sandbox
from longrein.sandbox.bwrap import HOME, OWN, PORT, SHARED_MB, WORK, environment, interpreter, read_only
from longrein.sandbox.folders import remove, write_files
from longrein.sandbox.limits import WATCHED
from longrein.sandbox.process import INIT, running, start_tree
from longrein.toolchain.spec import InstalledToolchain


@frozen
class DockerOptions:
    """[sandbox.options] of the backend "docker" """

    image: str = "debian:stable"
    """An image that is there already; it must have what agents call (git, Node.js) and, where longrein's own Python stands below
    /usr, the same Python."""


class DockerSandbox(Sandbox):
    """Containers through the docker program. Its daemon must see this machine's files: no remote engine."""

    name: ClassVar[str] = "docker"
    is_security_boundary: ClassVar[bool] = True
    shares_network: ClassVar[bool] = False
    writable: ClassVar[tuple[str, ...]] = (str(WORK), str(HOME), "/tmp", "/dev/shm")
    shows_workdir_twice: ClassVar[bool] = True
    Options: ClassVar[type] = DockerOptions

    @classmethod
    def unavailable(cls) -> str | None:
        """Ask the engine; return why it does not answer."""
        program = shutil.which("docker")
        if program is None:
            return "docker is not installed"
        try:
            asked = subprocess.run([program, "version"], capture_output=True, text=True, timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"docker cannot be run: {error}"
        if asked.returncode == 0:
            return None
        return f"docker's engine does not answer: {asked.stderr.strip()[-300:]} (start it, or join the group that may use it)"

    @classmethod
    def protections(cls) -> Mapping[str, str]:
        """Return what is in force here, and by which means."""
        return {
            "network": "none but loopback",
            "memory": "control group of the container",
            "processes": "control group of the container",
            "disk": WATCHED,
            "system calls": "the engine's filter",
        }

    def place(self, slot: int) -> Place:
        """Return the constant place."""
        url = f"http://127.0.0.1:{PORT}"
        return Place(workdir=WORK, home=HOME, base_url=url, python=PurePosixPath(interpreter()), tools=OWN / "tools")

    async def start(self, slot: int, plan: LaunchPlan, *, files: Mapping[str, str], toolchain: InstalledToolchain | None) -> RunningSession:
        """Start `plan` in a container of its own; see `Sandbox.start`."""
        folder = Path(tempfile.mkdtemp(prefix="s", dir=self.runtime))
        work, home = folder / "work", folder / "home"
        init = {
            "argv": list(plan.argv),
            "workdir": str(WORK),
            "folders": [str(WORK), str(HOME)],
            "relay_port": PORT,
            "relay_socket": str(OWN / "policy"),
        }
        inside = environment(plan, HOME, PurePosixPath(interpreter()).parent, PurePosixPath("/tmp"))

        def fill() -> None:
            work.mkdir()
            home.mkdir()
            write_files({**files, **plan.files}, {WORK: work, HOME: home}, WORK)

        try:
            await asyncio.to_thread(fill)
            argv = self._argv(slot, folder, plan, inside, toolchain)
            # The engine's own settings are in its environment. The agent's values are too, since arguments can be seen by all.
            tree = await start_tree(argv, init, env={**os.environ, **plan.env}, limits=self.limits, ready_on_stderr=True)
        except BaseException:
            await asyncio.to_thread(remove, folder)
            raise
        record: dict[str, Any] = {"backend": self.name, "interpreter": str(interpreter()), "image": self.options.image}
        record["in_force"] = dict(self.protections())
        return running(tree, workspace=work, record=record, clean_up=lambda: remove(folder))

    def _argv(
        self, slot: int, folder: Path, plan: LaunchPlan, inside: Mapping[str, str], toolchain: InstalledToolchain | None
    ) -> list[str]:
        program = shutil.which("docker")
        if program is None:
            raise SandboxError("docker is not installed")
        limits, megabytes = self.limits, 1 << 20
        shown = {**self.doors(slot, OWN), INIT: OWN / "init.py", **read_only(plan, toolchain)}
        base = Path(sys.base_prefix)
        if not base.is_relative_to("/usr"):
            shown[base] = PurePosixPath(base)
        mounts = [f"type=bind,src={outer},dst={inner},readonly" for outer, inner in shown.items()]
        mounts += [f"type=bind,src={folder / 'work'},dst={WORK}", f"type=bind,src={folder / 'home'},dst={HOME}"]
        mounts += [f"type=bind,src={folder / 'work'},dst={plan.workdir_too}"] if plan.workdir_too else []
        values = [name if name in plan.env else f"{name}={value}" for name, value in inside.items()]
        return [
            *(program, "run", "--rm", "--interactive", "--pull", "never", "--network", "none", "--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--user", f"{os.getuid()}:{os.getgid()}", "--hostname", "longrein"),
            *("--memory", f"{limits.memory_mb}m", "--memory-swap", f"{limits.memory_mb}m"),
            *("--pids-limit", str(limits.max_threads), "--ulimit", f"fsize={limits.file_size_mb * megabytes}"),
            *("--tmpfs", f"/tmp:rw,exec,size={limits.disk_mb}m", "--shm-size", f"{min(SHARED_MB, limits.disk_mb)}m"),
            *(part for mount in mounts for part in ("--mount", mount)),
            *(part for value in values for part in ("--env", value)),
            *("--workdir", str(WORK), "--entrypoint", str(interpreter()), self.options.image, "-I", "-S", str(OWN / "init.py")),
        ]
