"""Packets between the grader, the server and the inits: bytes and some descriptors."""

import _socket as socket
import _struct
import os

MAX_BYTES, MAX_FDS = 1 << 12, 8
REPLY = _struct.Struct("=iBddd")
"""What a case left: exit code, index of what ended it, seconds of CPU and of wall time, megabytes at most."""
ENDINGS = ("", "cpu", "wall", "memory")


def send(sock: socket.socket, message: bytes, fds: tuple[int, ...] = ()) -> None:
    """Send a packet."""
    rights = b"".join([fd.to_bytes(4, "little") for fd in fds])
    sock.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if fds else [])


def receive(sock: socket.socket) -> tuple[bytes, list[int]]:
    """Return the next packet and its descriptors; an empty one at the end."""
    data, ancillary, _, _ = sock.recvmsg(MAX_BYTES, _ROOM, socket.MSG_CMSG_CLOEXEC)
    fds = []
    for level, kind, rights in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            for at in range(0, len(rights), 4):
                fds.append(int.from_bytes(rights[at : at + 4], "little"))
    return data, fds


_ROOM = socket.CMSG_SPACE(4 * MAX_FDS)


def read_all(fd: int) -> bytes:
    """Return the whole content of a memory file."""
    size = os.fstat(fd).st_size
    content = os.pread(fd, size, 0)
    if len(content) == size:
        return content
    parts = [content]  # one read ends at 2 GB
    offset = len(content)
    while offset < size and (part := os.pread(fd, size - offset, offset)):
        parts.append(part)
        offset += len(part)
    return b"".join(parts)


def read_into(content: bytearray, fd: int, start: int = 0) -> None:
    """Fill `content` from a file, without a copy elsewhere."""
    rest = memoryview(content)
    while rest and (got := os.preadv(fd, [rest], start)):
        rest, start = rest[got:], start + got
