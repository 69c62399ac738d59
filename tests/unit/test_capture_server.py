"""The capture server as an agent and the engine meet it: real sockets, a scripted policy behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from attrs import evolve

from longrein.capture import gate
from longrein.capture import session as session_module
from longrein.capture.server import CaptureServer
from longrein.capture.session import CaptureSession
from longrein.config import SamplingConfig
from longrein.errors import CaptureError
from longrein.model import PublicTask, Trajectory, Turn, TurnLabel
from longrein.testing.scripted import Reply, Script, ScriptedServer, logprob
from longrein.turns import build_rows, label_calls

ASK = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="lr-") as name:
        yield Path(name)


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
    return server.open_session(**{"max_calls": 50, "max_tokens": 100_000, "seed": 1, **limits})


def client(server: CaptureServer, key: str, **headers: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=f"http://127.0.0.1:{server.port}/v1",
        headers={"authorization": f"Bearer {key}", **headers},
        timeout=30,
    )


def discarded(session: CaptureSession) -> bool:
    """Return whether the session's only call is discarded and in no row."""
    labelled = label_calls(session.calls, session.tools, task=PublicTask("hello"))
    rows = build_rows(labelled, rollout_id="r", agent="a", token_budget=None).rows
    return [turn.label.label for turn in labelled] == ["discarded"] and not rows


def trajectory(session: CaptureSession) -> Trajectory:
    return Trajectory(tuple(Turn(call, TurnLabel("train", ""), "test") for call in session.calls), session.tools)


async def test_a_tool_loop_becomes_one_chain_of_deltas_with_the_engines_own_tokens() -> None:
    tools = [{"type": "function", "function": {"name": "write", "parameters": {}}}]
    replies = iter(
        [Reply("I write.", [("write", {"path": "a", "content": "x = 1"})]), Reply("", [("write", {"z": 1, "a": [1, 2]})]), Reply("Done.")]
    )
    async with capturing(lambda _: next(replies)) as (server, policy):
        session = open_session(server)
        messages: list[dict[str, Any]] = [{"role": "system", "content": "You code."}, {"role": "user", "content": "hello"}]
        async with client(server, session.key) as agent:
            for _ in range(3):
                answer = await agent.post("/chat/completions", json={"model": "any", "messages": messages, "tools": tools})
                message = answer.json()["choices"][0]["message"]
                for call in message.get("tool_calls") or []:
                    arguments = json.loads(call["function"]["arguments"])
                    call["function"]["arguments"] = json.dumps(arguments, indent=2, sort_keys=True)
                messages = [*messages, message, {"role": "tool", "tool_call_id": "1", "content": "written"}]
    first, second, third = session.calls
    assert (first.parent_id, second.parent_id, third.parent_id) == (None, "c0", "c1")
    assert len(second.context_ids) < 20
    assert (second.messages_base, second.messages_kept, len(second.messages)) == ("c0", 2, 2)
    turns = trajectory(session)
    assert [list(turns.messages(f"c{i}")) for i in range(3)] == [request["messages"] for request in policy.requests]
    assert [len(turns.prompt_ids(f"c{i}")) for i in range(3)] == [call.prompt_len for call in session.calls]
    assert list(third.logprobs) == [logprob(token, i) for i, token in enumerate(third.sampled_ids)]
    assert {call.tools_key for call in session.calls} == set(session.tools)
    assert list(session.tools.values()) == [tools]
    assert all(call.problem is None and call.error is None and call.delivered for call in session.calls)


async def test_the_policy_decides_the_sampling_and_the_agents_wishes_are_kept() -> None:
    async with capturing(lambda _: Reply("ok"), sampling=SamplingConfig(temperature=0.7)) as (server, policy):
        session = open_session(server)
        wishes = {"temperature": 0, "top_p": 0.8, "logprobs": False, "seed": 3, "presence_penalty": 1.5, "min_p": 0.3, "user": "u"}
        async with client(server, session.key) as agent:
            answer = await agent.post("/chat/completions", json={**ASK, **wishes})
            await agent.post("/chat/completions", json=ASK)
    sent, again = policy.requests
    assert (sent["temperature"], sent["top_p"], sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (0.7, 1.0, -1, 0.0, 1.0)
    assert sent["logprobs"] is True
    assert sent["return_token_ids"] is True
    assert "presence_penalty" not in sent
    assert "user" not in sent
    assert sent["model"] == "scripted"
    assert sent["seed"] != again["seed"]
    assert wishes.items() <= session.calls[0].requested_sampling.items()
    assert "logprobs" not in answer.json()["choices"][0]
    assert "token_ids" not in answer.text


@pytest.mark.parametrize(
    "constraint",
    [
        {"response_format": {"type": "json_object"}},
        {"tool_choice": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
        {"logit_bias": {"5": 1}},
        {"guided_regex": "a+"},
    ],
)
async def test_constrained_replies_are_refused_in_training_only(constraint: dict[str, Any]) -> None:
    async with capturing(lambda _: Reply("ok")) as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            answer = await agent.post("/chat/completions", json={**ASK, **constraint})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(
        "this endpoint trains a model and cannot constrain its replies: leave out " + next(iter(constraint))
    )
    assert not policy.requests
    assert session.calls[0].error == session.last_error == answer.json()["error"]["message"]
    async with capturing(lambda _: Reply("ok"), training=False) as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            assert (await agent.post("/chat/completions", json={**ASK, **constraint})).status_code == 200
        assert session.n_replies == 1


async def test_the_shortest_of_all_reply_limits_counts() -> None:
    async with capturing(lambda _: Reply("x" * 400), max_reply_tokens=100) as (server, policy):
        session = open_session(server, max_tokens=130)
        async with client(server, session.key) as agent:
            for asked in ({"max_tokens": 20}, {"max_tokens": 64_000}, {"max_completion_tokens": 50}):
                await agent.post("/chat/completions", json={**ASK, **asked})
    assert [request["max_tokens"] for request in policy.requests] == [20, 100, 10]
    assert [len(call.sampled_ids) for call in session.calls] == [20, 100, 10]
    assert {call.finish_reason for call in session.calls} == {"length"}


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_calls": 2}, "all 2 model calls of the session are used up"),
        ({"max_tokens": 6}, "all 6 sampled tokens of the session are used up"),
    ],
)
async def test_a_used_up_budget_ends_the_agents_loop_without_another_call(limits: dict[str, int], reason: str) -> None:
    async with capturing(lambda _: Reply("ok")) as (server, policy):
        session = open_session(server, **limits)
        async with client(server, session.key) as agent:
            answers = [(await agent.post("/chat/completions", json={**ASK, "stream": i == 2})).text for i in range(3)]
            assert session.budget_stop == reason
            assert not session.over.is_set()
            assert "budget exhausted" in answers[2]
            assert answers[2].endswith("data: [DONE]\n\n")
            for _ in range(3):
                assert not session.over.is_set()
                stop = (await agent.post("/chat/completions", json=ASK)).json()["choices"][0]
        assert stop["finish_reason"] == "stop"
        assert stop["message"]["content"]
        assert session.over.is_set()
        assert len(policy.requests) == len(session.calls) == 2
        session.close()


async def test_a_session_whose_agent_is_silent_after_the_stop_is_over_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "GRACE_S", 0.05)
    async with capturing(lambda _: Reply("ok")) as (server, _):
        session = open_session(server, max_calls=1)
        async with client(server, session.key) as agent:
            for _ in range(2):
                await agent.post("/chat/completions", json=ASK)
        await asyncio.wait_for(session.over.wait(), 5)


async def test_an_endpoint_without_ids_is_asked_for_none_and_its_calls_are_no_problem() -> None:
    async with capturing(lambda _: Reply("ok"), training=False, level="text") as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            answer = await agent.post("/chat/completions", json={**ASK, "temperature": 0, "n": 1})
            more = [*ASK["messages"], answer.json()["choices"][0]["message"], {"role": "user", "content": "go on"}]
            await agent.post("/chat/completions", json={"messages": more})
            assert (await agent.post("/chat/completions", json={**ASK, "n": 2})).status_code == 400
    assert {"logprobs", "return_token_ids", "top_p", "top_k"}.isdisjoint(policy.requests[0])
    assert policy.requests[0]["temperature"] == 1.0
    assert [(call.parent_id, call.problem, call.prompt_len) for call in session.calls] == [(None, None, 0), ("c0", None, 0)]


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


async def test_a_closed_session_is_refused_and_leaves_the_others_alone() -> None:
    async with capturing(lambda request: Reply(request["messages"][0]["content"])) as (server, _):
        sessions = [open_session(server) for _ in range(8)]

        async def talk(number: int) -> list[str]:
            async with client(server, sessions[number].key) as agent:
                asks = [{"messages": [{"role": "user", "content": f"{number}-{i}"}]} for i in range(4)]
                answers = [await agent.post("/chat/completions", json=ask) for ask in asks]
            return [answer.json()["choices"][0]["message"]["content"] for answer in answers]

        answers = await asyncio.gather(*map(talk, range(8)))
        assert answers == [[f"{number}-{i}" for i in range(4)] for number in range(8)]
        for number, session in enumerate(sessions):
            assert [call.reply["content"] for call in session.calls] == answers[number]
        sessions[0].close()
        async with client(server, sessions[0].key) as agent:
            assert (await agent.post("/chat/completions", json=ASK)).status_code == 401
        assert (await talk(1))[0] == "1-0"
        assert len(sessions[0].calls) == 4


async def test_a_client_that_goes_away_cancels_the_engine() -> None:
    hold = threading.Event()
    async with capturing(lambda _: Reply("late", hold=hold)) as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            waiting = asyncio.create_task(agent.post("/chat/completions", json=ASK))
            await until(lambda: session.pending == 1 and policy.requests)
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
    hold = threading.Event()
    async with capturing(lambda _: Reply("late", hold=hold)) as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            waiting = asyncio.create_task(agent.post("/chat/completions", json=ASK))
            await until(lambda: session.pending == 1 and policy.requests)
            session.close()
            assert [(call.error, call.delivered) for call in session.calls] == [("cancelled: the session was closed", False)]
            assert (await waiting).status_code == 503
        assert await asyncio.to_thread(policy.dropped.wait, 5)
        assert len(session.calls) == 1
        assert session.pending == 0


async def test_an_engine_that_fails_leaves_calls_with_the_error() -> None:
    replies = iter([Reply("no such adapter", status=404), Reply(fault="cut"), Reply("ok")])
    async with capturing(lambda _: next(replies)) as (server, _):
        session = open_session(server)
        async with client(server, session.key) as agent:
            answers = [await agent.post("/chat/completions", json=ASK) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [502, 502, 200]
    assert session.calls[0].error == "upstream returned 404: no such adapter"
    assert session.calls[1].error
    assert session.calls[1].error == session.last_error
    assert (session.n_errors, session.n_replies) == (2, 1)
    assert session.calls[2].error is None
    assert session.calls[2].messages_base == "c1"


async def test_a_prompt_that_is_too_long_ends_the_loop_as_context_overflow() -> None:
    with ScriptedServer(lambda _: Reply("ok"), max_model_len=200) as policy:
        async with CaptureServer(policy.endpoint, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=500) as server:
            session = open_session(server)
            async with client(server, session.key) as agent:
                short = await agent.post("/chat/completions", json=ASK)
                long = await agent.post("/chat/completions", json={"messages": [{"role": "user", "content": "x" * 300}]})
    assert policy.requests[0]["max_tokens"] == 100, "a reply never takes more than half of the context"
    assert short.json()["choices"][0]["message"]["content"] == "ok"
    assert long.status_code == 200
    assert long.json()["choices"][0]["finish_reason"] == "stop"
    assert session.context_overflow
    assert "maximum context length" in (session.calls[1].error or "")


async def test_versions_come_from_the_reply_or_else_from_the_server() -> None:
    stated = {"longrein": {"version_first": 3, "version_last": 4}}
    replies = iter([Reply("a"), Reply("b", extra=stated), Reply("c", extra={"longrein": "?"})])
    async with capturing(lambda _: next(replies)) as (server, _):
        session = open_session(server)
        server.version = 7
        async with client(server, session.key) as agent:
            answers = [await agent.post("/chat/completions", json=ASK) for _ in range(3)]
    assert [(call.version_first, call.version_last) for call in session.calls] == [(7, 7), (3, 4), (7, 7)]
    assert all("longrein" not in answer.json() for answer in answers)


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


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 3}', b'{"messages": [3], "tools": 7}', b'{"messages": [{"role": 1}]}'])
async def test_nonsense_gets_an_error_and_harms_nobody(body: bytes) -> None:
    async with capturing(lambda _: Reply("ok")) as (server, _):
        session = open_session(server)
        async with client(server, session.key) as agent:
            assert (await agent.post("/chat/completions", content=body)).status_code >= 400
            assert (await agent.post("/chat/completions", json=ASK)).status_code == 200


async def test_the_key_is_in_no_log_and_no_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with capturing(lambda _: Reply("broken", status=500), api_key="upstream-secret") as (server, policy):
        session = open_session(server)
        async with client(server, session.key) as agent:
            await agent.post("/chat/completions", json=ASK)
        assert "upstream error" in caplog.text, "openenv's log was watched"
        for secret in (session.key, "upstream-secret"):
            assert secret not in caplog.text + repr(session) + repr(session.calls) + repr(evolve(policy.endpoint, api_key=secret))


async def test_a_socket_path_that_is_too_long_says_so(folder: Path) -> None:
    async with capturing(lambda _: Reply("ok")) as (server, _):
        with pytest.raises(CaptureError, match="unix sockets allow 107"):
            async with server.serve(open_session(server), folder / ("x" * 120)):
                pass


async def until(condition: Any) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)
