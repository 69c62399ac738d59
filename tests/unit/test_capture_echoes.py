"""What an agent echoes of a reply in the Responses and Messages dialects becomes the tokens that were sampled."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from longrein.capture.server import CaptureServer
from longrein.capture.session import CaptureSession
from longrein.config import SamplingConfig
from longrein.testing.scripted import Reply, ScriptedServer

CALLS = [("add", {"a": 1, "é": "ü\n"}), ("add", {"a": 2})]
REPLIES = {
    "text and a call": Reply("I add.", CALLS[:1]),
    "calls only": Reply("", CALLS),
    "text, thought and calls": Reply("I add.", CALLS, reasoning="let me see"),
    "thought and text": Reply("No.", reasoning="hm"),
    "thought and a call": Reply("", CALLS[:1], reasoning="hm"),
}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@asynccontextmanager
async def serving(reply: Reply) -> AsyncIterator[tuple[httpx.AsyncClient, CaptureSession]]:
    with ScriptedServer(lambda _: reply) as policy:
        async with CaptureServer(policy.endpoint, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=900) as server:
            session = server.open_session(max_calls=5, max_tokens=10_000, seed=0)
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", headers={"x-api-key": session.key}) as agent:
                yield agent, session


def events(text: str) -> list[Any]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("case", REPLIES)
async def test_responses_items_that_come_back_are_one_message(case: str) -> None:
    asked = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    tools = [{"type": "function", "name": "add", "parameters": SCHEMA}]
    async with serving(REPLIES[case]) as (agent, session):
        stream = await agent.post("/v1/responses", json={"model": "m", "input": asked, "tools": tools, "stream": True})
        items = events(stream.text)[-1]["response"]["output"]
        made = [item for item in items if item["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": item["call_id"], "output": "ok"} for item in made]
        again = [*asked, *items, *results, *asked]
        await agent.post("/v1/responses", json={"model": "m", "input": again, "tools": tools, "stream": True})
    first, second = session.calls
    assert second.parent_id == first.id
    assert [message["role"] for message in second.messages] == ["assistant", *["tool"] * len(made), "user"]


@pytest.mark.parametrize("case", REPLIES)
async def test_messages_blocks_that_come_back_are_one_message_and_the_prompt_is_counted(case: str) -> None:
    asked = [{"role": "user", "content": "hi"}]
    body = {"model": "m", "max_tokens": 900, "tools": [{"name": "add", "input_schema": SCHEMA}]}
    async with serving(REPLIES[case]) as (agent, session):
        answer = (await agent.post("/v1/messages", json={**body, "messages": asked})).json()
        stream = await agent.post("/v1/messages", json={**body, "messages": asked, "stream": True})
        blocks = answer["content"]
        results = [{"type": "tool_result", "tool_use_id": b["id"], "content": "ok"} for b in blocks if b["type"] == "tool_use"]
        back = [{"role": "assistant", "content": blocks}, {"role": "user", "content": [*results, {"type": "text", "text": "go on"}]}]
        await agent.post("/v1/messages", json={**body, "messages": [*asked, *back], "stream": True})
    first, second, third = session.calls
    assert third.parent_id in (first.id, second.id)
    assert [message["role"] for message in third.messages] == ["assistant", *["tool"] * len(results), "user"]
    (usage,) = [event["usage"] for event in events(stream.text) if event["type"] == "message_delta"]
    assert usage == {"input_tokens": first.prompt_len, "output_tokens": len(first.sampled_ids)}
