"""The private control socket: one JSON object a line in, one out, `{"ok": ...}` or `{"error": text}`."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

from longrein.errors import ServeError
from longrein.serve.scheduler import Scheduler

MODES = ("wait",)


class ControlServer:
    """Pause, load, resume and status of one scheduler.

    Args:
        scheduler: what is controlled.
        weights: the only folder that files are loaded from.
    """

    def __init__(self, scheduler: Scheduler, weights: Path) -> None:
        self.scheduler, self.weights = scheduler, weights.resolve()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await self._reply(line)).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # the client has gone; what it asked for is done
        finally:
            writer.close()

    async def _reply(self, line: bytes) -> dict[str, Any]:
        try:
            return {"ok": await self._do(**json.loads(line))}
        except ServeError as error:
            return {"error": str(error)}
        except Exception as error:  # a malformed line or a fault of ours: the caller is told, the server goes on
            return {"error": f"{type(error).__name__}: {error}"}

    async def _do(self, call: str, mode: str = "wait", path: str = "", version: int = 0) -> Any:
        if call == "pause":
            if mode not in MODES:
                raise ServeError(f"unknown pause mode {mode!r}; known: {', '.join(MODES)}")
            return await asyncio.wrap_future(self.scheduler.pause())
        if call == "resume":
            return self.scheduler.resume()
        if call == "load":
            return await asyncio.wrap_future(self.scheduler.load(self._allowed(Path(path)), version))
        if call == "status":
            return {**self.scheduler.status(), "weights": str(self.weights)}
        raise ServeError(f"unknown control call {call!r}; known: load, pause, resume, status")

    def _allowed(self, path: Path) -> Path:
        real = path.resolve()  # links are followed first: one inside the folder may point out of it
        if not real.is_relative_to(self.weights):
            raise ServeError(f"refused to load {path}: only files below {self.weights} are loaded")
        return real


class ControlClient:
    """Calls the control socket of a policy server; every call blocks until it is done.

    Args:
        path: the socket.
        timeout_s: how long a call may take; a pause waits for the replies under way.
    """

    def __init__(self, path: Path, *, timeout_s: float = 120.0) -> None:
        self.path, self.timeout_s = path, timeout_s

    def pause(self, mode: str = "wait") -> None:
        """Let the replies under way end and start no other."""
        self._call("pause", mode=mode)

    def load(self, weights: Path, version: int) -> None:
        """Swap the weights between two replies.

        Raises:
            ServeError: the file is outside the server's weights folder or does not fit; the old weights stay.
        """
        self._call("load", path=str(weights), version=version)

    def resume(self) -> None:
        """Answer the requests that have queued up, and new ones."""
        self._call("resume")

    def status(self) -> dict[str, Any]:
        """Return version, paused, running, queued, counters, and the weights folder."""
        status: dict[str, Any] = self._call("status")
        return status

    def _call(self, call: str, **arguments: Any) -> Any:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self.timeout_s)
                connection.connect(str(self.path))
                connection.sendall(json.dumps({"call": call, **arguments}).encode() + b"\n")
                with connection.makefile("rb") as replies:
                    line = replies.readline()
        except TimeoutError as error:
            raise ServeError(f"the policy server did not finish {call!r} within {self.timeout_s:g} s") from error
        except OSError as error:
            raise ServeError(f"the policy server does not answer on {self.path}: {error.strerror}; it has probably ended") from error
        if not line:
            raise ServeError(f"the policy server ended during {call!r}")
        reply = json.loads(line)
        if "error" in reply:
            raise ServeError(reply["error"])
        return reply["ok"]
