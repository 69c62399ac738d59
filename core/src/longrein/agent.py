"""What an agent adapter is: it installs, launches and reads one agent, and never imports it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Literal

from attrs import field, frozen

from longrein.model import Action, PublicTask, SessionResult, Trajectory, Turn, TurnLabel
from longrein.options import NoOptions
from longrein.toolchain.spec import InstalledToolchain, ToolchainSpec


@frozen
class Capabilities:
    """What an agent can do, declared before anything is spent."""

    dialect: Literal["chat", "responses", "messages", "google", "none"] = "chat"
    history: Literal["append_only", "rewrites", "strips_thinking"] = "append_only"
    tools: bool = True
    """True when the agent uses native tool calls."""
    calls_model: bool = True
    """False for agents such as `nop`, which are graded without a model call."""
    needs_solution: bool = False
    """True when the session must carry the task's solution (`oracle`)."""
    honours_turn_cap: bool = False
    """True when the agent ends by itself after `Session.max_turns` model calls."""
    mcp: bool = False
    """True when the agent offers the model the tools of `Session.mcp`; others are refused tasks that have an environment."""


@frozen
class McpServer:
    """A program that speaks MCP on its standard input and output: the agent's way to the tools of the task's environment."""

    argv: Sequence[str]
    env: Mapping[str, str]
    """What its environment must hold besides the agent's own."""


@frozen
class Session:
    """What an adapter knows when it plans a launch. Paths are those inside the sandbox."""

    task: PublicTask
    model: str
    base_url: str
    """Root of the model routes without a trailing slash, for example http://127.0.0.1:8080; chat is at `base_url`/v1."""
    api_key: str
    """The session's secret; valid for its model routes only."""
    workdir: PurePosixPath
    home: PurePosixPath
    python: PurePosixPath
    """The interpreter that the agent and the grader use."""
    toolchain: InstalledToolchain | None = None
    """Where the agent's program stands inside the sandbox; None for agents without one."""
    solution: Mapping[str, str] | None = None
    """The task's solution files, only for adapters that declare `needs_solution`."""
    max_turns: int | None = None
    """Model calls after which the agent should end, for adapters that declare `honours_turn_cap`; else None."""
    max_model_len: int | None = None
    """Longest sequence of the policy, in tokens; agents that compact their history need it."""
    mcp: McpServer | None = None
    """How to reach the tools of the task's environment; None where it has none. Only for adapters that declare `mcp`."""

    @property
    def check_command(self) -> str | None:
        """Shell command that runs the public examples, or None when the task has none."""
        return f"{self.python} {self.task.check}" if self.task.check else None


@frozen
class LaunchPlan:
    """A process to start in the sandbox. Standard input is always closed."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(factory=dict)
    """The whole environment besides HOME, PATH, TMPDIR and LANG, which the sandbox sets."""
    files: Mapping[str, str] = field(factory=dict)
    """Files to write first: path relative to `workdir`, or absolute below `workdir` or `home`; value is the text."""
    path: Sequence[str] = ()
    """Folders to put first on PATH."""
    read_only: Sequence[Path] = ()
    """Further files and folders of the host that the session reads, where they stand; never one with hidden data."""
    workdir_too: str | None = None
    """Another path at which the working folder is shown; longrein sets it from the task."""


class AgentAdapter(ABC):
    """One agent. Subclass it, return it from `longrein_agents`, name it in a config."""

    name: ClassVar[str]
    capabilities: ClassVar[Capabilities] = Capabilities()
    toolchain: ClassVar[ToolchainSpec | None] = None
    Options: ClassVar[type] = NoOptions
    contract: ClassVar[str | None] = None
    """"module:Class" of the `longrein.testing.AdapterContract` that says how a scripted policy speaks to this agent; None
    takes the default, which knows agents with native tools."""

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    def program(self, session: Session) -> str:
        """Return the path of the toolchain's program inside the sandbox; its bare name where there is no toolchain."""
        if session.toolchain:
            return str(session.toolchain.program)
        return self.toolchain.program if self.toolchain else self.name

    @abstractmethod
    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start the agent; pure: the same session gives the same plan, nothing is touched."""

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        """Return a label where this agent's habits decide it, else None to keep the structural proposal.

        `turn.label` holds the structural proposal.
        """
        return None

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return what the agent did, in order, read from the trajectory and the process output."""
        return ()
