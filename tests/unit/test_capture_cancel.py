"""Clients that go away and sessions that are closed: the engine stops, and the call stays in the record as not delivered."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.unit.capturing import ASK, capturing, client, open_session, until

from longrein.capture.session import CaptureSession
from longrein.model import PublicTask
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.turns import build_rows, label_calls


def discarded(session: CaptureSession) -> bool:
    """Return whether the session's only call is discarded and in no row."""
    labelled = label_calls(session.calls, session.tools, task=PublicTask("hello"))
    rows = build_rows(labelled, rollout_id="r", agent="a", token_budget=None).rows
    return [turn.label.label for turn in labelled] == ["discarded"] and not rows


@contextlib.asynccontextmanager
async def call_on_hold() -> AsyncIterator[tuple[CaptureSession, ScriptedServer, asyncio.Task[httpx.Response]]]:
    """Yield a session, the policy that holds its reply back, and the client's request."""
    async with capturing(lambda _: Reply("late", hold=threading.Event())) as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            waiting = asyncio.create_task(agent.post("/chat/completions", json=ASK))
            await until(lambda: session.pending == 1 and policy.requests)
            yield session, policy, waiting


async def test_a_client_that_goes_away_cancels_the_engine() -> None:
    async with call_on_hold() as (session, policy, waiting):
        waiting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        assert await asyncio.to_thread(policy.dropped.wait, 5)
        await until(lambda: session.calls)
        assert session.pending == 0
        assert session.n_errors == 0
        (call,) = session.calls
        assert not call.delivered
        assert call.error == "cancelled: the client had gone"
        assert not call.sampled_ids
        assert discarded(session)


async def test_a_streaming_client_that_goes_away_cancels_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    from openenv.core.harness.capture import sse

    monkeypatch.setattr(sse, "KEEPALIVE_INTERVAL_S", 0.05)
    hold = threading.Event()
    async with capturing(lambda _: Reply("late", hold=hold)) as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            async with agent.stream("POST", "/chat/completions", json={**ASK, "stream": True}) as answer:
                assert (await anext(answer.aiter_text())).startswith(": ")
            assert await asyncio.to_thread(policy.dropped.wait, 5)
        await until(lambda: session.calls)
        assert not session.calls[0].delivered
        assert session.pending == 0


async def test_a_reply_that_its_client_did_not_take_is_not_delivered(folder: Path) -> None:
    """The reply is recorded already, larger than what the socket holds, and the client closes without reading."""
    async with capturing(lambda _: Reply("x" * 3_000_000), training=False, level="text", max_model_len=None, max_reply_tokens=10**7) as (
        server,
        _,
    ):
        session = open_session(server, max_tokens=10**8)
        async with server.serve(session, folder / "c.sock"):
            _, writer = await asyncio.open_unix_connection(str(folder / "c.sock"))
            body = json.dumps({**ASK, "stream": True}).encode()
            writer.write(
                f"POST /v1/chat/completions HTTP/1.1\r\nhost: c\r\nauthorization: Bearer {session.key}\r\n"
                f"content-length: {len(body)}\r\n\r\n".encode()
                + body
            )
            await until(lambda: session.calls)
            assert session.calls[0].delivered
            writer.transport.abort()
            await until(lambda: not session.calls[0].delivered)
            await until(lambda: not session.exchanges)
        assert session.calls[0].reply["content"]
        assert discarded(session)


async def test_closing_a_session_cancels_its_calls() -> None:
    async with call_on_hold() as (session, policy, waiting):
        session.close()
        assert [(call.error, call.delivered) for call in session.calls] == [("cancelled: the session was closed", False)]
        assert (await waiting).status_code == 503
        assert await asyncio.to_thread(policy.dropped.wait, 5)
        assert len(session.calls) == 1
        assert session.pending == 0
