"""`python -m longrein_openenv.serve APP LISTENER READY`: an OpenEnv server that ends with whoever started it.

APP is "package.module:app" or "path/to/app.py:app"; LISTENER and READY are inherited descriptors: a bound socket, and a pipe that
is told once the app answers. The end of standard input ends the server.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.importer import import_from_string


class Server(uvicorn.Server):
    """Tells on a pipe that it has started."""

    def __init__(self, config: uvicorn.Config, ready: int) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started:
            os.write(self._ready, b"ready\n")


def main(target: str, listener: int, ready: int) -> None:
    """Serve until standard input ends."""
    servers: list[Server] = []

    def follow() -> None:
        os.read(0, 1)
        if not servers:
            os._exit(0)
        servers[0].should_exit = True

    threading.Thread(target=follow, daemon=True).start()
    where, _, name = target.rpartition(":")
    if where.endswith(".py"):
        path = Path(where).expanduser().resolve()
        sys.path.insert(0, str(path.parent))
        where = path.stem
    app: Any = import_from_string(f"{where}:{name}")
    config = uvicorn.Config(app, ws="websockets-sansio", log_level="warning", access_log=False, timeout_graceful_shutdown=3)
    servers.append(Server(config, ready))
    servers[0].run(sockets=[socket.socket(fileno=listener)])


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
