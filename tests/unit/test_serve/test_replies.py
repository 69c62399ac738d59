"""What clients see: whole and streamed replies, tool calls, stop strings, refusals; and conversations that continue token for token."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from longrein.serve.sampling import Sampling, draw
from longrein.serve.template import ChatTemplate, parse_tool_calls

from .conftest import CALLS, RESULTS, TASK, TOOLS


async def stream(server: Any, **body: Any) -> list[dict[str, Any]]:
    events = []
    request = {"messages": [TASK], "stream": True, "logprobs": True, "return_token_ids": True, **body}
    async with server.client.stream("POST", "/chat/completions", json=request) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        async for line in reply.aiter_lines():
            if line:
                assert line.startswith("data: ")
                events.append(line.removeprefix("data: "))
    assert events.pop() == "[DONE]"
    return [json.loads(event) for event in events]


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    choices = [choice for event in events for choice in event["choices"]]
    return {
        "content": "".join(choice["delta"].get("content") or "" for choice in choices),
        "tool_calls": [call["function"] for choice in choices for call in choice["delta"].get("tool_calls") or []],
        "ids": [token for choice in choices for token in choice.get("token_ids") or []],
        "logprobs": [entry["logprob"] for choice in choices for entry in (choice.get("logprobs") or {}).get("content") or []],
        "finish": [choice["finish_reason"] for choice in choices if choice["finish_reason"]],
        "prompt": [event["prompt_token_ids"] for event in events if "prompt_token_ids" in event],
    }


def whole(reply: dict[str, Any]) -> dict[str, Any]:
    choice = reply["choices"][0]
    return {
        "content": choice["message"]["content"] or "",
        "tool_calls": [call["function"] for call in choice["message"].get("tool_calls") or []],
        "ids": choice["token_ids"],
        "logprobs": [entry["logprob"] for entry in choice["logprobs"]["content"]],
        "finish": [choice["finish_reason"]],
        "prompt": [reply["prompt_token_ids"]],
    }


async def test_a_session_of_three_calls_is_one_row(agent_dir: Path, start: Any) -> None:
    """Each prompt begins with the prompt and the sample of the call before, though the agent re-serialises the arguments."""
    messages: list[dict[str, Any]] = [TASK]
    row: list[int] = []
    async with start(agent_dir) as server:
        for turn in range(3):
            reply = await server.chat(messages=messages, tools=TOOLS, temperature=0)
            assert reply["prompt_token_ids"][: len(row)] == row, f"turn {turn} does not continue the turn before"
            row = reply["prompt_token_ids"] + reply["choices"][0]["token_ids"]
            message = reply["choices"][0]["message"]
            if turn < 2:
                assert reply["choices"][0]["finish_reason"] == "tool_calls"
                assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == CALLS[turn]
                function = {"name": "bash", "arguments": json.dumps(CALLS[turn], separators=(",", ":"))}
                call = {**message["tool_calls"][0], "function": function}
                echo = {"role": "assistant", "content": message["content"], "tool_calls": [call]}
                messages = [*messages, echo, {"role": "tool", "tool_call_id": call["id"], "content": RESULTS[turn]}]
        assert reply["choices"][0]["finish_reason"] == "stop"
        assert message == {"role": "assistant", "content": "Done."}
        assert server.scheduler.status()["reused_tokens"] >= len(reply["prompt_token_ids"]) // 2


async def test_streamed_replies_say_the_same(agent_dir: Path, model_dir: Path, start: Any) -> None:
    async with start(agent_dir) as server:
        events = await stream(server, tools=TOOLS, temperature=0, stream_options={"include_usage": True})
        reply = await server.chat(tools=TOOLS, temperature=0)
        assert events.pop()["usage"] == reply["usage"]
        said, expected = assembled(events), whole(reply)
        assert said.pop("logprobs") == pytest.approx(expected.pop("logprobs"), abs=1e-5)
        assert said == expected
        assert said["content"] == "I will."
        assert all(event["longrein"] == {"version_first": 0, "version_last": 0} for event in events)
    async with start(model_dir) as server:  # bytes at random: many tokens are no whole character
        for seed in range(5):
            said, expected = assembled(await stream(server, seed=seed, max_tokens=60)), whole(await server.chat(seed=seed, max_tokens=60))
            assert said["content"] == expected["content"]
            assert said["ids"] == expected["ids"]


@pytest.mark.parametrize("choice", [{"tools": TOOLS, "tool_choice": "none"}, {"tools": []}])
async def test_tool_calls_stay_text_when_nobody_asked_for_tools(agent_dir: Path, start: Any, choice: dict[str, Any]) -> None:
    async with start(agent_dir) as server:
        message = (await server.chat(temperature=0, **choice))["choices"][0]["message"]
        assert "tool_calls" not in message


async def test_a_stop_string_cuts_the_text_and_ends_the_reply(model_dir: Path, start: Any) -> None:
    async with start(model_dir) as server:
        text = whole(await server.chat(seed=7, max_tokens=60, ignore_eos=True))["content"]
        stop = next(text[i : i + 3] for i in range(20, len(text) - 3) if "\ufffd" not in text[i : i + 3])
        cut = whole(await server.chat(seed=7, max_tokens=60, ignore_eos=True, stop=["never said", stop]))
        assert cut["content"] == text[: text.index(stop)]
        assert cut["finish"] == ["stop"]
        assert len(cut["ids"]) == len(cut["logprobs"]) < 60
        assert assembled(await stream(server, seed=7, max_tokens=60, ignore_eos=True, stop=stop))["content"] == cut["content"]


async def test_alternatives_and_temperature_zero(model_dir: Path, start: Any) -> None:
    async with start(model_dir) as server:
        reply = await server.chat(temperature=0, top_logprobs=3, max_tokens=5)
        for token, entry in zip(reply["choices"][0]["token_ids"], reply["choices"][0]["logprobs"]["content"], strict=True):
            assert entry["token"] == f"token_id:{token}"
            assert len(entry["top_logprobs"]) == 3
            assert entry["top_logprobs"][0] == {"token": entry["token"], "logprob": entry["logprob"], "bytes": None}


async def test_a_seed_fixes_the_reply_and_no_seed_leaves_it_open(model_dir: Path, start: Any) -> None:
    async with start(model_dir) as server:
        replies = [whole(await server.chat(seed=seed, max_tokens=20, ignore_eos=True))["ids"] for seed in (1, 1, 2, None, None)]
        assert replies[0] == replies[1]
        assert len(set(map(tuple, replies[1:]))) == 4


def test_tokens_are_drawn_with_the_probabilities_that_are_reported() -> None:
    probabilities, n = [0.5, 0.0, 0.3, 0.15, 0.05, 0.0], 4000
    rows = torch.tensor(probabilities).log().expand(n, -1)
    tokens = draw(rows, [Sampling()] * n, [random.Random(seed) for seed in range(n)])
    for token, probability in enumerate(probabilities):
        assert abs(tokens.count(token) / n - probability) <= 5 * (probability * (1 - probability) / n) ** 0.5


async def test_truncated_sampling_reports_the_truncated_distribution(model_dir: Path, start: Any) -> None:
    async with start(model_dir) as server:
        for truncation, kept in (({"top_k": 2}, 2), ({"top_p": 1e-6}, 1), ({"min_p": 1.0}, 1)):
            reply = await server.chat(seed=3, top_logprobs=4, max_tokens=8, ignore_eos=True, **truncation)
            for entry in reply["choices"][0]["logprobs"]["content"]:
                alternatives = [top for top in entry["top_logprobs"] if top["logprob"] > -9999]
                assert len(alternatives) == kept
                assert entry["token"] in {top["token"] for top in alternatives}
                if kept == 1:
                    assert entry["logprob"] == 0


REFUSED = [
    ({"model": "other"}, 404, "unknown model 'other'; this server has 'tiny'"),
    ({"messages": []}, 400, "messages must be a list"),
    ({"messages": [{"role": "refused", "content": ""}]}, 400, "no such role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "text parts"),
    ({"messages": [{"content": "x"}]}, 400, "needs a role"),
    ({"messages": [{"role": "assistant", "tool_calls": [{}]}]}, 400, "tool_calls must be"),
    ({"tools": "bash"}, 400, "tools must be a list"),
    ({"tools": TOOLS, "tool_choice": "required"}, 400, "tool_choice='required'"),
    ({"response_format": {"type": "json_object"}}, 400, "response_format="),
    ({"logit_bias": {"1": 5}}, 400, "logit_bias="),
    ({"n": 2}, 400, "n=2 is not supported"),
    ({"temperature": -1}, 400, "temperature must be a number from 0 to 100, got -1"),
    ({"temperature": "hot"}, 400, "got 'hot'"),
    ({"max_tokens": 0}, 400, "max_tokens must be a number from 1"),
    ({"stop": [1]}, 400, "stop must be"),
    ({"seed": "x"}, 400, "seed must be"),
    ({"messages": [{"role": "user", "content": "long " * 2000}]}, 400, "maximum context length is 1024 tokens"),
]


async def test_what_cannot_be_answered_is_refused_with_the_reason(model_dir: Path, start: Any) -> None:
    async with start(model_dir) as server:
        for body, status, message in REFUSED:
            reply = await server.post(**body)
            assert reply.status_code == status, body
            assert message in reply.json()["error"]["message"]
        broken = await server.client.post("/chat/completions", content=b"{")
        assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_request")
        assert (await server.post(messages=REFUSED[-1][0]["messages"])).json()["error"]["code"] == "context_length_exceeded"
        assert server.scheduler.status()["requests"] == 0
        neutral = {"n": 1, "presence_penalty": 0.0, "top_k": -1, "logit_bias": None, "response_format": {"type": "text"}, "max_tokens": 1}
        assert (await server.post(**neutral)).status_code == 200


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_client_that_goes_away_ends_its_reply(model_dir: Path, start: Any, streaming: bool) -> None:
    async with start(model_dir) as server:
        body = {"messages": [TASK], "ignore_eos": True, "stream": streaming}
        request = asyncio.create_task(server.client.post("/chat/completions", json=body))
        while not server.scheduler.status()["running"]:
            await asyncio.sleep(0.001)
        request.cancel()
        with pytest.raises((asyncio.CancelledError, httpx.HTTPError)):
            await request
        await asyncio.wrap_future(server.scheduler.pause())
        status = server.scheduler.status()
        assert (status["cancelled"], status["replies"]) == (1, 0)


async def test_content_parts_and_absent_content_are_text(agent_dir: Path, start: Any) -> None:
    async with start(agent_dir) as server:
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        prompts = [
            (await server.chat(messages=messages, max_tokens=1))["prompt_token_ids"]
            for messages in (
                [{"role": "developer", "content": parts}, {"role": "assistant", "content": None}],
                [{"role": "system", "content": "a\nb"}, {"role": "assistant", "content": ""}],
            )
        ]
        assert prompts[0] == prompts[1]


def block(text: str) -> str:
    return f"<tool_call>\n{text}\n</tool_call>"


GOOD = block('{"name": "f", "arguments": {"x": "é"}}')


@pytest.mark.parametrize(
    ("text", "content", "n_calls"),
    [
        (GOOD, "", 1),
        (f"text\n{GOOD}\n{GOOD}", "text", 2),
        (f"text{GOOD}more", "textmore", 1),
        ("<tool_call>", "<tool_call>", 0),
        (GOOD.removesuffix("</tool_call>"), GOOD.removesuffix("</tool_call>"), 0),
        *[
            (bad, bad, 0)
            for bad in map(
                block,
                (
                    "",
                    "no json",
                    "[]",
                    '"f"',
                    '{"name": "f"}',
                    '{"name": 1, "arguments": {}}',
                    '{"name": "f", "arguments": "x"}',
                    "[" * 100_000,
                ),
            )
        ],
        (f"{block('{')}\n{GOOD}", block("{"), 1),
    ],
)
def test_tool_calls_are_parsed_and_malformed_ones_stay_text(text: str, content: str, n_calls: int) -> None:
    parsed, calls = parse_tool_calls(text)
    assert (parsed, len(calls)) == (content, n_calls)
    assert all(call["function"] == {"name": "f", "arguments": '{"x": "é"}'} for call in calls)


@given(cuts=st.sets(st.integers(1, 40)), rest=st.text(max_size=20))
def test_a_reply_cut_otherwise_than_the_tokenizer_would_is_continued(tokenizer: Any, cuts: set[int], rest: str) -> None:
    template = ChatTemplate(tokenizer)
    text = "Hello hello, I will write the arguments."
    edges = [0, *sorted(cut for cut in cuts if cut < len(text)), len(text)]
    sampled = [token for a, b in itertools.pairwise(edges) for token in tokenizer(text[a:b])["input_ids"]]
    sampled.append(tokenizer.eos_token_id)
    messages = [{"role": "user", "content": "hi"}]
    prompt = template.render(messages, None)
    ids = template.encode(prompt)
    template.remember(prompt, ids, sampled)
    further = template.render([*messages, {"role": "assistant", "content": text}, {"role": "user", "content": rest}], None)
    again = template.encode(further)
    assert again[: len(ids) + len(sampled)] == [*ids, *sampled]
    assert tokenizer.decode(again) == further
