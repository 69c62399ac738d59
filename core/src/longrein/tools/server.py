"""The engine's end of a session's tools: MCP, one JSON message a line, on a unix socket that only this session sees."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from longrein.capture.listen import unix_listener
from longrein.environment import Environment, Tool, ToolError
from longrein.errors import LongreinError
from longrein.plugins.guard import describe

MAX_LINE = 1 << 20
"""Bytes of one message."""
MAX_CONNECTIONS = 8
PACE_S = 0.005
"""Between two messages of a connection: lines that are buffered would keep the engine's loop for themselves."""
LONGEST = 100_000
"""Characters of a result; the middle of a longer one is left out."""
PROTOCOL = "2025-06-18"
KNOWN = ("2024-11-05", "2025-03-26", PROTOCOL)
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602


class ToolServer:
    """Serves the tools of one environment to one session.

    Attributes:
        failure: what went wrong in the environment, which ends the session; None while it is sound.
        over: set with it.
        pending: calls that are waited for or made now.
        last_activity: `time.monotonic()` of the last call or result.
    """

    def __init__(self, environment: Environment, key: str) -> None:
        self._environment, self._key = environment, key
        self._tools = {tool.name: tool for tool in environment.tools}
        self._one = asyncio.Lock()
        self._connections: set[asyncio.Task[None]] = set()
        self.failure: str | None = None
        self.over = asyncio.Event()
        self.pending = 0
        self.last_activity = time.monotonic()

    @contextlib.asynccontextmanager
    async def serve(self, path: Path) -> AsyncIterator[None]:
        """Serve on a unix socket until the block ends; calls under way are then given up.

        Raises:
            CaptureError: the socket cannot be bound.
        """
        server = await asyncio.start_unix_server(self._connected, sock=unix_listener(path), limit=MAX_LINE)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            if hmac.compare_digest((await reader.readline()).strip(), self._key.encode()):
                while line := await reader.readline():
                    if (answer := await self._answer(line)) is not None:
                        writer.write(json.dumps(answer).encode() + b"\n")
                        await writer.drain()
                    await asyncio.sleep(PACE_S)
        except (OSError, ValueError):  # it went away, or its line is longer than MAX_LINE
            pass
        except asyncio.CancelledError:  # the session has ended; asyncio would report the cancelled handler
            pass
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _answer(self, line: bytes) -> dict[str, Any] | None:
        """Return the answer to a message, or None where it is a notification."""
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return _error(None, PARSE_ERROR, "the line is no JSON")
        if not isinstance(message, dict) or not isinstance(message.get("method"), str):
            return _error(None, INVALID_REQUEST, "a message is an object with a method")
        if "id" not in message:
            return None
        number, method, given = message["id"], message["method"], message.get("params")
        parameters = given if isinstance(given, dict) else {}
        if method == "initialize":
            return _result(number, _hello(parameters))
        if method == "ping":
            return _result(number, {})
        if method == "tools/list":
            return _result(number, {"tools": [_shown(tool) for tool in self._tools.values()]})
        if method != "tools/call":
            return _error(number, METHOD_NOT_FOUND, f"unknown method {method[:100]!r}")
        name, arguments = parameters.get("name"), parameters.get("arguments")
        if not isinstance(name, str) or name not in self._tools or not isinstance(arguments, dict | None):
            return _error(number, INVALID_PARAMS, f"no such tool or arguments; the tools are {', '.join(self._tools)}")
        return _result(number, await self._call(name, arguments or {}))

    async def _call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        self.pending += 1
        self.last_activity = time.monotonic()
        try:
            async with self._one:
                if self.failure is not None:
                    return _text("the environment has ended", failed=True)
                try:
                    return _text(await self._environment.call(name, arguments))
                except ToolError as error:
                    return _text(str(error), failed=True)
                except Exception as error:  # plugin code, or a server elsewhere: never the policy's doing
                    self.failure = str(error) if isinstance(error, LongreinError) else f"tool {name!r}: {describe(error)}"
                    self.over.set()
                    return _text("the environment has ended", failed=True)
        finally:
            self.pending -= 1
            self.last_activity = time.monotonic()


def _hello(parameters: Mapping[str, Any]) -> dict[str, Any]:
    wanted = parameters.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in KNOWN else PROTOCOL,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "environment", "version": "1"},
    }


def _shown(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "inputSchema": tool.parameters}


def _text(text: str, *, failed: bool = False) -> dict[str, Any]:
    half = LONGEST // 2
    shown = text if len(text) <= LONGEST else f"{text[:half]}\n[{len(text) - LONGEST} characters left out]\n{text[-half:]}"
    return {"content": [{"type": "text", "text": shown}], "isError": failed}


def _result(number: Any, result: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _error(number: Any, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}
