"""Serve an ASGI app on sockets of ours inside the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from longrein.errors import CaptureError

_LONGEST_SOCKET_PATH = 107


def unix_listener(path: Path) -> socket.socket:
    """Bind a unix socket that only this user can use.

    Raises:
        CaptureError: the path is longer than a unix socket's may be, or cannot be bound.
    """
    if len(str(path).encode()) > _LONGEST_SOCKET_PATH:
        raise CaptureError(
            f"socket path {str(path)!r} has {len(str(path).encode())} bytes; unix sockets allow"
            f" {_LONGEST_SOCKET_PATH}. Use a shorter folder, for example through TMPDIR"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if path.is_socket():  # left behind by a process that was killed
            path.unlink()
        listener.bind(str(path))
        path.chmod(0o600)
    except OSError as error:
        listener.close()
        raise CaptureError(f"cannot listen on {path}: {error.strerror}") from error
    return listener


def loopback_listener() -> socket.socket:
    """Bind a free port of 127.0.0.1."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    return listener


class _Server(uvicorn.Server):  # type: ignore[misc]
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The process that owns the loop decides about Ctrl-C.
        yield


@contextlib.asynccontextmanager
async def serving(app: Any, listeners: Sequence[socket.socket]) -> AsyncIterator[None]:
    """Serve `app` on the listeners until the block ends; open requests are then cut off."""
    # Agents keep connections while they run tests; one that closes as it is used again is an error to them.
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, log_level="critical", access_log=False, timeout_keep_alive=600)
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=list(listeners)))
    try:
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if task.done():
            await task
        yield
    finally:
        server.should_exit = server.force_exit = True
        await task
