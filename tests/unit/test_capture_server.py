"""The capture server as an agent and the engine meet it: real sockets, a scripted policy behind it."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from attrs import evolve
from tests.unit.capturing import ASK, capturing, client, open_session

from longrein.capture import session as session_module
from longrein.capture.server import CaptureServer
from longrein.capture.session import CaptureSession
from longrein.config import SamplingConfig
from longrein.model import Trajectory, Turn, TurnLabel
from longrein.testing.scripted import Reply, ScriptedServer, logprob


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
