"""Each wire dialect, streaming and not, becomes the same kind of call."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from longrein.capture.server import CaptureServer
from longrein.config import SamplingConfig
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.testing.tokens import ASSISTANT, END, USER

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
CHAT = {
    "model": "m",
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0.2,
    "tools": [{"type": "function", "function": {"name": "add", "parameters": PARAMETERS}}],
}
RESPONSES = {"model": "m", "input": "hi", "temperature": 0.2, "tools": [{"type": "function", "name": "add", "parameters": PARAMETERS}]}
MESSAGES = {
    "model": "m",
    "max_tokens": 90,
    "messages": [{"role": "user", "content": "hi"}],
    "temperature": 0.2,
    "tools": [{"name": "add", "input_schema": PARAMETERS}],
}
GOOGLE = {
    "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    "generationConfig": {"temperature": 0.2},
    "tools": [{"functionDeclarations": [{"name": "add", "parameters": PARAMETERS}]}],
}
CASES = {
    "chat": ("/v1/chat/completions", "/v1/chat/completions", CHAT, "authorization"),
    "responses": ("/v1/responses", "/v1/responses", RESPONSES, "authorization"),
    "messages": ("/v1/messages", "/v1/messages", MESSAGES, "x-api-key"),
    "google": ("/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse", GOOGLE, "x-goog-api-key"),
}


def events(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


@pytest.mark.parametrize("dialect", CASES)
async def test_a_tool_call_in_every_dialect(dialect: str) -> None:
    plain, streamed, body, header = CASES[dialect]
    with ScriptedServer(lambda _: Reply("I add.", [("add", {"a": 41})])) as policy:
        async with CaptureServer(
            policy.endpoint,
            sampling=SamplingConfig(temperature=0.9),
            training=True,
            open_port=True,
            max_reply_tokens=100,
        ) as server:
            session = server.open_session(max_calls=5, max_tokens=1000, seed=0)
            secret = f"Bearer {session.key}" if header == "authorization" else session.key
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", headers={header: secret}) as agent:
                answer = await agent.post(plain, json=body)
                stream = await agent.post(streamed, json=body if dialect == "google" else {**body, "stream": True})
    assert (answer.status_code, stream.status_code) == (200, 200)
    assert stream.headers["content-type"].startswith("text/event-stream")
    for text in (answer.text, stream.text):
        assert "I add." in text
        assert "41" in text
    assert len(events(stream.text)) >= 1
    first, second = session.calls
    for call in (first, second):
        assert call.dialect == dialect
        assert call.problem is None
        assert call.reply["tool_calls"][0]["function"]["name"] == "add"
        assert call.requested_sampling["temperature"] == 0.2
        assert {"stream", "messages", "input", "contents"}.isdisjoint(call.requested_sampling)
        assert [dict(message) for message in policy.requests[call.index]["messages"]] == [{"role": "user", "content": "hi"}]
    assert list(first.context_ids[-5:]) == [USER, *b"hi", END, ASSISTANT]
    assert list(first.sampled_ids) == list(second.sampled_ids)
    assert first.tools_key == second.tools_key
    assert policy.requests[0]["temperature"] == 0.9


@pytest.mark.parametrize(
    ("dialect", "constraint"),
    [
        ("responses", {"text": {"format": {"type": "json_schema", "name": "x", "schema": PARAMETERS}}}),
        ("responses", {"tool_choice": "required"}),
        ("messages", {"tool_choice": {"type": "tool", "name": "add"}}),
        ("google", {"toolConfig": {"functionCallingConfig": {"mode": "ANY"}}}),
        ("google", {"generationConfig": {"responseMimeType": "application/json", "responseSchema": PARAMETERS}}),
    ],
)
async def test_constraints_are_refused_in_every_dialect(dialect: str, constraint: dict[str, Any]) -> None:
    path, _, body, _ = CASES[dialect]
    with ScriptedServer(lambda _: Reply("hello")) as policy:
        async with CaptureServer(policy.endpoint, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=100) as server:
            session = server.open_session(max_calls=5, max_tokens=1000, seed=0)
            async with httpx.AsyncClient(headers={"x-api-key": session.key}) as agent:
                answer = await agent.post(f"http://127.0.0.1:{server.port}{path}", json={**body, **constraint})
    assert answer.status_code == 400
    assert "cannot constrain its replies" in answer.text
    assert not policy.requests


async def test_chat_streaming_has_role_deltas_finish_usage_and_done() -> None:
    with ScriptedServer(lambda _: Reply("hello there")) as policy:
        async with CaptureServer(policy.endpoint, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=100) as server:
            session = server.open_session(max_calls=5, max_tokens=1000, seed=0)
            async with httpx.AsyncClient(headers={"authorization": f"Bearer {session.key}"}) as agent:
                ask = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
                stream = await agent.post(f"http://127.0.0.1:{server.port}/v1/chat/completions", json=ask)
    chunks = events(stream.text)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
    assert deltas[0]["role"] == "assistant"
    assert "".join(delta.get("content") or "" for delta in deltas) == "hello there"
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]][-1] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] == len(session.calls[0].sampled_ids)
    assert stream.text.endswith("data: [DONE]\n\n")


async def test_counting_tokens_is_answered_and_is_no_call() -> None:
    with ScriptedServer(lambda _: Reply("hello")) as policy:
        async with CaptureServer(policy.endpoint, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=100) as server:
            session = server.open_session(max_calls=5, max_tokens=1000, seed=0)
            async with httpx.AsyncClient(headers={"x-api-key": session.key}) as agent:
                answer = await agent.post(f"http://127.0.0.1:{server.port}/v1/messages/count_tokens", json=MESSAGES)
    assert answer.json()["input_tokens"] > 0
    assert not session.calls
    assert not policy.requests
