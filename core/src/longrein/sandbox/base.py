"""What a sandbox is: it prepares a place, runs one process tree in it, hands back the files, and leaves nothing."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from attrs import field, frozen

from longrein.agent import LaunchPlan
from longrein.options import NoOptions
from longrein.sandbox.limits import SandboxLimits
from longrein.toolchain.spec import InstalledToolchain


@frozen
class Place:
    """Where a session will run, known before the launch plan is made. Paths are those inside the sandbox."""

    workdir: PurePosixPath
    home: PurePosixPath
    base_url: str
    python: PurePosixPath
    tools: PurePosixPath | None = None
    """The socket on which the tools of an environment are served; None where the backend has no way to them."""


@frozen
class ProcessResult:
    """What was left when every process of the session was dead."""

    exit_code: int | None
    """None when it was ended by us."""
    ended_by: str
    """"exit", or the reason given to `stop`."""
    stdout: bytes
    stderr: bytes
    workspace: Mapping[str, bytes] = field(repr=False)
    """Path below the workspace to content; regular files only, size-capped."""
    record: Mapping[str, Any] = field(factory=dict)
    """Backend, interpreter and protections in force, for the rollout's record."""


@frozen
class RunningSession:
    """Handles the engine holds while a session runs."""

    stop: Callable[[str], None]
    """Kill the whole tree; the argument becomes `ended_by`. Safe to call at any time and more than once."""
    wait: Callable[[], Awaitable[ProcessResult]]
    """Wait for the end, collect the workspace and remove every trace."""
    last_output: Callable[[], float] = time.monotonic
    """Return time.monotonic() of the last output, which counts as a sign of life."""


class Sandbox(ABC):
    """A backend. One object serves all sessions of a run.

    Args:
        limits: limits for each session.
        capture_port: a loopback port of the capture server, for backends that share the host's network; else None.
        runtime: a short private folder for sockets and session folders, removed with the run.
        options: an object of the class `Options`.
    """

    name: ClassVar[str]
    is_security_boundary: ClassVar[bool]
    shares_network: ClassVar[bool]
    """True when sessions use the host's loopback; the engine then opens a port for capture."""
    writable: ClassVar[tuple[str, ...]]
    """The folders that a session is to write to, as it sees them."""
    shows_workdir_twice: ClassVar[bool] = False
    """True when the working folder can be shown at another path too, as `LaunchPlan.workdir_too` asks."""
    Options: ClassVar[type] = NoOptions

    def __init__(self, *, limits: SandboxLimits, capture_port: int | None, runtime: Path, options: Any = None) -> None:
        self.limits, self.capture_port, self.runtime = limits, capture_port, runtime
        self.options = self.Options() if options is None else options

    def capture_socket(self, slot: int) -> Path:
        """Return the unix socket on which the engine answers the session in `slot`, and no other."""
        return self.runtime / f"s{slot}.sock"

    def tools_socket(self, slot: int) -> Path:
        """Return the unix socket on which the session in `slot` reaches the tools of its environment; it exists while it has one."""
        return self.runtime / f"s{slot}.tools"

    def doors(self, slot: int, own: PurePosixPath) -> dict[Path, PurePosixPath]:
        """Return the sockets that the session in `slot` sees, and where they stand below its folder `own`."""
        tools = self.tools_socket(slot)
        return {self.capture_socket(slot): own / "policy", **({tools: own / "tools"} if tools.is_socket() else {})}

    @classmethod
    def protections(cls) -> Mapping[str, str]:
        """Return what this backend has in force on this machine: what is limited, and by which means."""
        return {}

    @classmethod
    @abstractmethod
    def unavailable(cls) -> str | None:
        """Return why this backend does not work here and how to mend it, or None when it works (really tried)."""

    @abstractmethod
    def place(self, slot: int) -> Place:
        """Return the place of a session in `slot`, a number no other running session has."""

    @abstractmethod
    async def start(self, slot: int, plan: LaunchPlan, *, files: Mapping[str, str], toolchain: InstalledToolchain | None) -> RunningSession:
        """Start `plan` in a fresh place holding `files` (path below the workspace to text) and the plan's own files.

        Besides the system, the session reads the toolchain's folders and `plan.read_only`, each at the path it has here.

        Raises:
            SandboxError: the place could not be made.
        """
