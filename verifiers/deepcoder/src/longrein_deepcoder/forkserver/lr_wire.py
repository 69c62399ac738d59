"""Messages between the grader, the server and the inits: one JSON object and some descriptors a packet."""

import array
import json
import os
import socket
from typing import Any

MAX_BYTES, MAX_FDS = 1 << 16, 8


def send(sock: socket.socket, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
    """Send a message with descriptors."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([json.dumps(message).encode()], rights)


def receive(sock: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message and its descriptors; None at the end."""
    data, ancillary, _, _ = sock.recvmsg(MAX_BYTES, socket.CMSG_SPACE(4 * MAX_FDS), socket.MSG_CMSG_CLOEXEC)
    fds: list[int] = []
    for level, kind, content in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.extend(array.array("i", content[: len(content) - len(content) % 4]))
    return (json.loads(data) if data else None), fds


def read_all(fd: int) -> bytes:
    """Return the whole content of a memory file."""
    size = os.fstat(fd).st_size
    parts = []
    offset = 0
    while offset < size and (part := os.pread(fd, min(size - offset, 1 << 30), offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
