"""Processes that a test finds again: by a word that no other command line on the machine has."""

from __future__ import annotations

import secrets
from pathlib import Path


def unique_s() -> str:
    """Return seconds to `sleep` that no other process sleeps."""
    return f"{600 + secrets.randbelow(300)}.{secrets.randbelow(10**9):09}"


def running_with(seconds: str) -> list[str]:
    """Return the command lines of the processes that sleep these seconds."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue  # ended meanwhile
        if line.startswith(b"sleep\0" + seconds.encode()):
            found.append(line.replace(b"\0", b" ").decode().strip())
    return found
