"""Limits of a session's process tree; apart from the backends so that a config loads none of them."""

from __future__ import annotations

from attrs import frozen

WATCHED = "watched"
"""A limit that the session's first process looks at up to four times a second; a session that passes it is ended."""


@frozen
class SandboxLimits:
    """Limits in force for the process tree of a session."""

    memory_mb: int = 4096
    """Memory of all its processes."""
    max_processes: int = 256
    """Its processes; see `max_threads`."""
    file_size_mb: int = 64
    """Largest file that it can write."""
    disk_mb: int = 1024
    """Size of its workspace, of its home and of its temporary folder, each."""
    max_files: int = 100_000
    """Files in each of them."""
    workspace_mb: int = 64
    """Total size kept of the workspace after the session."""
    output_kb: int = 256
    """Tail kept of each output stream."""

    @property
    def max_threads(self) -> int:
        """Its processes and threads together: eight for each process."""
        return 8 * self.max_processes
