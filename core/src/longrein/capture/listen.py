"""Serve an ASGI app on sockets of ours inside the running event loop."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, cast

import uvicorn
from uvicorn.server import ServerState

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


MAX_CONNECTIONS = 64
"""Open connections of one session; agents keep a few. More are cut at once, so that none can use up the engine's descriptors."""


@contextlib.asynccontextmanager
async def serving(app: Any, listeners: Sequence[socket.socket], *, max_connections: int | None = None) -> AsyncIterator[None]:
    """Serve `app` on the listeners until the block ends; open requests are then cut off.

    uvicorn's protocol without its server, whose loop adds 0.2 s to every end: a session has a listener of its own.

    Args:
        app: an ASGI app.
        listeners: bound sockets; closed at the end.
        max_connections: connections at once; more are closed as they come. None takes any number.
    """
    # Agents keep connections while they run tests; one that closes as it is used again is an error to them.
    config = uvicorn.Config(app, lifespan="off", ws="none", log_config=None, log_level="critical", access_log=False, timeout_keep_alive=600)
    config.load()
    state = ServerState()
    state.default_headers = config.encoded_headers

    def connected() -> asyncio.Protocol:
        if max_connections is not None and len(state.connections) >= max_connections:
            return _Cut()
        protocol: asyncio.Protocol = config.http_protocol_class(config=config, server_state=state, app_state={})
        return protocol

    loop = asyncio.get_running_loop()
    servers = []
    try:
        for listener in listeners:
            servers.append(await loop.create_server(connected, sock=listener))
        yield
    finally:
        for server in servers:
            server.close()
        for listener in listeners:  # one whose server was cancelled as it was made
            listener.close()
        for connection in list(state.connections):
            connection.transport.abort()
        tasks = list(state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Cut(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()
