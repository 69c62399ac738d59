# ruff: noqa: SIM105 - few imports, for it starts with each session
"""MCP on standard input and output, inside the sandbox: `python bridge.py SOCKET` carries lines to the engine and back.

The engine answers on the socket once it has read the session's key. Nothing is kept or decided here.
"""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    """Carry both directions until the engine ends the session or the agent closes its end."""
    door = socket.socket(socket.AF_UNIX)
    door.connect(sys.argv[1])
    door.sendall(os.environ["LONGREIN_TOOLS_KEY"].encode() + b"\n")
    threading.Thread(target=carry, args=(0, door), daemon=True).start()
    while data := door.recv(65536):
        while data:
            data = data[os.write(1, data) :]


def carry(source: int, door: socket.socket) -> None:
    """Send what the agent says; its end of file ends the connection, and with it this program."""
    try:
        while data := os.read(source, 65536):
            door.sendall(data)
    except OSError:
        pass  # the engine ended first
    try:
        door.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


if __name__ == "__main__":
    main()
