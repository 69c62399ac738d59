"""Sandboxes: where an agent's processes run."""

from longrein.sandbox.base import Place, ProcessResult, RunningSession, Sandbox
from longrein.sandbox.bwrap import BubblewrapSandbox
from longrein.sandbox.choose import choose
from longrein.sandbox.docker import DockerSandbox
from longrein.sandbox.limits import SandboxLimits
from longrein.sandbox.policy import SandboxPolicy
from longrein.sandbox.runtime import runtime_folder
from longrein.sandbox.supervisor import SupervisorSandbox

__all__ = [
    "BubblewrapSandbox",
    "DockerSandbox",
    "Place",
    "ProcessResult",
    "RunningSession",
    "Sandbox",
    "SandboxLimits",
    "SandboxPolicy",
    "SupervisorSandbox",
    "choose",
    "runtime_folder",
]
