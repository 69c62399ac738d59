"""Packets between the grader, the server and the inits: bytes and some descriptors."""

import _socket as socket
import os

MAX_BYTES, MAX_FDS = 1 << 16, 8


def send(sock: socket.socket, message: bytes, fds: tuple[int, ...] = ()) -> None:
    """Send a packet."""
    rights = b"".join(fd.to_bytes(4, "little") for fd in fds)
    sock.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if fds else [])


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next packet and its descriptors; an empty one at the end."""
    data, ancillary, _, _ = sock.recvmsg(MAX_BYTES, socket.CMSG_SPACE(4 * MAX_FDS), socket.MSG_CMSG_CLOEXEC)
    rights = b"".join(content for level, kind, content in ancillary if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS))
    return data, [int.from_bytes(rights[at : at + 4], "little") for at in range(0, len(rights), 4)]


def read_all(fd: int) -> bytes:
    """Return the whole content of a memory file."""
    size = os.fstat(fd).st_size
    parts = []
    offset = 0
    while offset < size and (part := os.pread(fd, min(size - offset, 1 << 30), offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
