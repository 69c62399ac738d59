"""Sandboxes: where an agent's processes run."""

from longrein.sandbox.base import Place, ProcessResult, RunningSession, Sandbox
from longrein.sandbox.limits import SandboxLimits

__all__ = ["Place", "ProcessResult", "RunningSession", "Sandbox", "SandboxLimits"]
