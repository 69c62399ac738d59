"""The outermost layer: only model routes, only with a live session's key, and a watch on clients that go away."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from longrein.capture.session import EXCHANGE, CaptureSession, Exchange

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Of all requests that a session has open: memory is the engine's."""
SLOW_DOWN_S = 0.5
"""How long a refusal for haste takes: it holds one of the session's connections, so a flood of requests stays a trickle."""

_ROUTES = (
    ("GET", re.compile(r"/v1/models"), ""),
    ("POST", re.compile(r"/v1/chat/completions"), "chat"),
    ("POST", re.compile(r"/v1/responses"), "responses"),
    ("POST", re.compile(r"/v1/messages(/count_tokens)?"), "messages"),
    ("POST", re.compile(r"/v1(alpha|beta)?/models/[^:]+:(generateContent|streamGenerateContent|countTokens)"), "google"),
)


class Gate:
    """ASGI middleware around openenv's capture app.

    Args:
        app: the app inside.
        sessions: live sessions by key.
        owner: the session whose listener this is; requests without its key count against its rate too.
    """

    def __init__(self, app: Any, sessions: Mapping[str, CaptureSession], *, owner: CaptureSession | None = None) -> None:
        self._app, self._sessions, self._owner = app, sessions, owner
        self.strangers = 0
        """Model calls that came without a live session's key."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        dialect = _dialect(scope["method"], scope["path"])
        session = self._sessions.get(_key(scope["headers"]))
        payer = self._owner or session
        if payer is not None and not payer.allow():
            await asyncio.sleep(SLOW_DOWN_S)
            return await _refuse(send, 429, "too many requests", retry_after=True)
        if dialect is None:
            return await _refuse(send, 404, "no such route; this endpoint answers model calls only")
        if session is None:
            self.strangers += 1
            return await _refuse(send, 401, "unknown API key")
        session.last_activity = time.monotonic()
        exchange = Exchange(session, dialect)
        try:
            body = await _read(receive, exchange)
            if body is None:
                return await _refuse(send, 413, f"the open requests of this session are larger than {MAX_BODY_BYTES} bytes")
            await self._answer(exchange, scope, body, receive, send)
        finally:
            session.n_open_bytes -= exchange.n_bytes

    async def _answer(self, exchange: Exchange, scope: Any, body: bytes, receive: Any, send: Any) -> None:
        channel = _Channel(exchange, body, send)
        token = EXCHANGE.set(exchange)
        inner = asyncio.create_task(self._app(scope, channel.receive, channel.send))
        EXCHANGE.reset(token)
        watch = asyncio.create_task(channel.watch(receive))
        exchange.session.exchanges[inner] = exchange
        try:
            await asyncio.wait({inner, watch}, return_when=asyncio.FIRST_COMPLETED)
            if exchange.gone:
                inner.cancel()
            with suppress(asyncio.CancelledError):
                await inner
        finally:
            inner.cancel()
            watch.cancel()
            del exchange.session.exchanges[inner]
        if not channel.started and not exchange.gone:
            await _refuse(send, 503, "the session has ended")


class _Channel:
    """What the app inside sees of the connection: the whole body at once, then silence until the client goes."""

    def __init__(self, exchange: Exchange, body: bytes, send: Any) -> None:
        self._exchange, self._send = exchange, send
        self._body: bytes | None = body
        self._left = asyncio.Event()
        self.started = False

    async def receive(self) -> dict[str, Any]:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.started = True
        if message["type"] == "http.response.body" and not message.get("more_body"):
            self._exchange.answered = True
        await self._send(message)

    async def watch(self, receive: Any) -> None:
        """Wait until the client goes, and note it when the answer was not yet on its way."""
        while (await receive())["type"] != "http.disconnect":
            pass
        if not self._exchange.answered:
            self._exchange.gone = True
            self._exchange.leave("cancelled: the client had gone")
            self._left.set()


def _dialect(method: str, path: str) -> str | None:
    return next((name for verb, pattern, name in _ROUTES if verb == method and pattern.fullmatch(path)), None)


def _key(headers: list[tuple[bytes, bytes]]) -> str:
    values = {name.lower(): value.decode("latin-1") for name, value in headers}
    bearer = values.get(b"authorization", "")
    if bearer.lower().startswith("bearer "):
        return bearer[7:].strip()
    return values.get(b"x-api-key") or values.get(b"x-goog-api-key") or ""


async def _read(receive: Any, exchange: Exchange) -> bytes | None:
    chunks = []
    while True:
        message = await receive()
        chunks.append(message.get("body", b""))
        exchange.n_bytes += len(chunks[-1])
        exchange.session.n_open_bytes += len(chunks[-1])
        if exchange.session.n_open_bytes > MAX_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(chunks)


async def _refuse(send: Any, status: int, message: str, *, retry_after: bool = False) -> None:
    body = json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": status}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if retry_after:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
