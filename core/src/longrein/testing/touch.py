"""What a function does besides returning: files it writes, programs it starts, connections it makes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")

_TOUCHES = (
    "os.mkdir",
    "os.remove",
    "os.rmdir",
    "os.rename",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.truncate",
    "os.putenv",
    "os.unsetenv",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.bind",
    "socket.connect",
    "socket.getaddrinfo",
)
_seen: ContextVar[list[str] | None] = ContextVar("longrein_touched", default=None)


def touched(call: Callable[[], T]) -> tuple[T, list[str]]:
    """Return what `call` returns and what it touched, as Python's own audit events tell it."""
    _listen()
    seen: list[str] = []
    token = _seen.set(seen)
    try:
        return call(), seen
    finally:
        _seen.reset(token)


@cache
def _listen() -> None:
    sys.addaudithook(_hook)  # cannot be taken out again


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    seen = _seen.get()
    if seen is None:
        return
    if event == "open":
        path, _mode, flags = arguments
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            seen.append(f"open {path} for writing")
    elif event in _TOUCHES:
        seen.append(f"{event} {arguments[0]!r:.200}")
