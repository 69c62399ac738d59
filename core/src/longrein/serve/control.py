"""The private control socket: one JSON object a line in, one out, `{"ok": ...}` or `{"error": text}`."""

from __future__ import annotations

import asyncio
import json
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
