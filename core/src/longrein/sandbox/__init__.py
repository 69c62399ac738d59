"""Sandboxes: where an agent's processes run."""

from longrein.sandbox.base import Place, ProcessResult, RunningSession, Sandbox
from longrein.sandbox.bwrap import BubblewrapSandbox
from longrein.sandbox.choose import choose
from longrein.sandbox.limits import SandboxLimits
from longrein.sandbox.runtime import runtime_folder
from longrein.sandbox.supervisor import SupervisorSandbox

__all__ = [
    "BubblewrapSandbox",
    "Place",
    "ProcessResult",
    "RunningSession",
    "Sandbox",
    "SandboxLimits",
    "SupervisorSandbox",
    "choose",
    "runtime_folder",
]
