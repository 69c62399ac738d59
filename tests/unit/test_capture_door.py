"""What a session's own socket lets through: its key, so many requests and connections, and the tools that are allowed."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

import httpx
import pytest
from tests.unit.capturing import ASK, capturing, client, open_session, through

from longrein.capture import gate
from longrein.capture import server as server_module
from longrein.capture import session as session_module
from longrein.errors import CaptureError
from longrein.testing.scripted import Reply


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


@pytest.mark.parametrize(
    ("method", "path", "key", "status"),
    [
        ("GET", "/health", True, 404),
        ("GET", "/docs", True, 404),
        ("GET", "/openapi.json", True, 404),
        ("GET", "/sessions", True, 404),
        ("POST", "/sessions", True, 404),
        ("GET", "/sessions/{key}/rollout", True, 404),
        ("DELETE", "/sessions/{key}", True, 404),
        ("POST", "/pause", True, 404),
        ("POST", "/v1/load_weights", True, 404),
        ("POST", "/v1/completions", True, 404),
        ("POST", "/v1/chat/completions/../../sessions", True, 404),
        ("GET", "/v1/models", False, 401),
        ("POST", "/v1/chat/completions", False, 401),
        ("GET", "/v1/models", True, 200),
    ],
)
async def test_only_model_routes_with_a_live_key_answer(method: str, path: str, key: bool, status: int) -> None:
    async with capturing(lambda _: Reply("ok")) as (server, policy):
        session = open_session(server)
        headers = {"authorization": f"Bearer {session.key}"} if key else {"authorization": "Bearer nobody"}
        async with httpx.AsyncClient(headers=headers) as agent:
            answer = await agent.request(method, f"http://127.0.0.1:{server.port}{path.format(key=session.key)}", json=ASK)
        assert answer.status_code == status
        assert not policy.requests
        assert not session.calls


async def test_too_large_and_too_many_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "MAX_BODY_BYTES", 1000)
    monkeypatch.setattr(session_module, "_BURST", 5.0)
    monkeypatch.setattr(session_module, "_RATE_PER_S", 0.001)
    async with capturing(lambda _: Reply("ok")) as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            assert (await agent.post("/chat/completions", json={"messages": "x" * 2000})).status_code == 413
            assert session.n_open_bytes == 0
            assert [(await agent.get("/models")).status_code for _ in range(6)] == [200] * 4 + [429] * 2
        assert not policy.requests


async def test_a_socket_path_that_is_too_long_says_so(folder: Path) -> None:
    async with capturing(lambda _: Reply("ok")) as (server, _):
        with pytest.raises(CaptureError, match="unix sockets allow 107"):
            async with server.serve(open_session(server), folder / ("x" * 120)):
                pass
