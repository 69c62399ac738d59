"""Limits of a session's process tree; apart from the backends so that a config loads none of them."""

from __future__ import annotations

from attrs import frozen


@frozen
class SandboxLimits:
    """Limits in force for the process tree of a session."""

    memory_mb: int = 4096
    max_processes: int = 256
    file_size_mb: int = 64
    workspace_mb: int = 64
    """Total size kept of the workspace after the session."""
    output_kb: int = 256
    """Tail kept of each output stream."""
