"""What the tests of capture share: a server before a scripted policy, its sessions and clients."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
from attrs import evolve

from longrein.capture.server import CaptureServer
from longrein.capture.session import CaptureSession
from longrein.config import SamplingConfig
from longrein.testing.scripted import Script, ScriptedServer

ASK = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}


@contextlib.asynccontextmanager
async def capturing(
    script: Script,
    *,
    training: bool = True,
    max_reply_tokens: int = 500,
    sampling: SamplingConfig | None = None,
    tools: tuple[str, ...] | None = None,
    **endpoint: Any,
) -> AsyncIterator[tuple[CaptureServer, ScriptedServer]]:
    """Serve a scripted policy's replies; yield the capture server and the policy."""
    with ScriptedServer(script) as policy:
        async with CaptureServer(
            evolve(policy.endpoint, **endpoint),
            sampling=sampling or SamplingConfig(),
            training=training,
            open_port=True,
            max_reply_tokens=max_reply_tokens,
            tools=tools,
        ) as server:
            yield server, policy


def open_session(server: CaptureServer, **limits: int) -> CaptureSession:
    """Open a session with wide budgets."""
    return server.open_session(**{"max_calls": 50, "max_tokens": 100_000, "seed": 1, **limits})


def client(server: CaptureServer, key: str, **headers: str) -> httpx.AsyncClient:
    """Return a client of the port that all sessions share."""
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}/v1",
        headers={"authorization": f"Bearer {key}", **headers},
        timeout=30,
    )


def through(socket: Path, key: str) -> httpx.AsyncClient:
    """Return a client of a session's own socket."""
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    return httpx.AsyncClient(base_url="http://capture/v1", transport=transport, headers={"authorization": f"Bearer {key}"}, timeout=30)


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds; fail when it does not."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
