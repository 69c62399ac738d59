"""What a session's own socket lets through: its key, so many requests and connections, and the tools that are allowed."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.unit.test_capture_server import ASK, capturing, client, open_session

from longrein.capture import server as server_module
from longrein.capture import session as session_module
from longrein.testing.scripted import Reply


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lr-") as name:
        yield Path(name)


def through(socket: Path, key: str) -> httpx.AsyncClient:
    transport = httpx.AsyncHTTPTransport(uds=str(socket))
    return httpx.AsyncClient(base_url="http://capture/v1", transport=transport, headers={"authorization": f"Bearer {key}"}, timeout=30)


async def test_a_sessions_own_socket_answers_its_key_alone_and_counts_every_request(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_BURST", 5.0)
    monkeypatch.setattr(session_module, "_RATE_PER_S", 0.001)
    async with capturing(lambda _: Reply("ok")) as (server, _):
        mine, other = open_session(server), open_session(server)
        async with server.serve(mine, folder / "s0.sock"), through(folder / "s0.sock", other.key) as thief:
            async with through(folder / "s0.sock", mine.key) as agent:
                assert (await agent.get("/models")).status_code == 200
            assert [(await thief.get("/models")).status_code for _ in range(5)] == [401] * 4 + [429]
            assert (await thief.get("/nothing")).status_code == 429, "requests without the key cost the session too"
        assert not (folder / "s0.sock").exists()
        async with client(server, other.key) as agent:
            assert (await agent.post("/chat/completions", json=ASK)).status_code == 200


async def test_a_session_has_so_many_connections_and_no_more(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "MAX_CONNECTIONS", 3)
    async with capturing(lambda _: Reply("ok")) as (server, _):
        session = open_session(server)
        async with server.serve(session, folder / "s0.sock"):
            held = [await asyncio.open_unix_connection(str(folder / "s0.sock")) for _ in range(5)]
            for reader, _ in held[3:]:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read(1) == b""
            held[0][1].close()
            await held[0][1].wait_closed()
            async with through(folder / "s0.sock", session.key) as agent:
                assert (await agent.post("/chat/completions", json=ASK)).status_code == 200
            for _, writer in held[1:]:
                writer.close()


async def test_only_the_tools_that_are_allowed_may_be_offered() -> None:
    tools = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ("bash", "web")]
    async with capturing(lambda _: Reply("ok"), tools=("bash", "edit")) as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            assert (await agent.post("/chat/completions", json={**ASK, "tools": tools[:1]})).status_code == 200
            answer = await agent.post("/chat/completions", json={**ASK, "tools": tools})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith("[sandbox] tools does not allow web; it allows bash, edit.")
    assert len(policy.requests) == 1
