"""The scripted endpoint: its tokens have the prefix property, and it misbehaves on demand only."""

from __future__ import annotations

import json
import tempfile
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.testing.scripted import Reply, ScriptedServer, logprob
from longrein.testing.solver import solver
from longrein.testing.tokens import ASSISTANT, CALL, VOCABULARY, prompt_tokens, reply_tokens

WANTED = {"logprobs": True, "return_token_ids": True}

texts = st.text(max_size=12)
arguments = st.dictionaries(texts, st.one_of(st.integers(), texts, st.lists(st.booleans(), max_size=2)), max_size=3)
assistants = st.builds(
    lambda text, calls: {
        "role": "assistant",
        "content": text or None,
        "tool_calls": [{"function": {"name": "run", "arguments": json.dumps(each)}} for each in calls],
    },
    texts,
    st.lists(arguments, max_size=2),
)
others = st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["user", "tool"]), texts)


def echoed(message: dict[str, Any]) -> dict[str, Any]:
    """The message as an agent sends it back: arguments written anew, empty fields in another form."""
    calls = [
        {"function": {"name": call["function"]["name"], "arguments": json.dumps(json.loads(call["function"]["arguments"]), indent=1)}}
        for call in message["tool_calls"]
    ]
    return {"role": "assistant", "content": message["content"] or "", **({"tool_calls": calls} if calls else {})}


@settings(max_examples=100)
@given(st.lists(st.tuples(others, assistants), min_size=1, max_size=4))
def test_an_echoed_history_is_an_exact_token_prefix(rounds: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    messages: list[dict[str, Any]] = []
    end: list[int] = []
    for other, answer in rounds:
        messages.append(other)
        prompt = prompt_tokens(messages, [{"function": {"name": "run"}}])
        assert prompt[: len(end)] == end
        end = prompt + reply_tokens(answer)
        messages.append(echoed(answer))
        assert max(end) < VOCABULARY


def test_an_agent_that_asks_for_a_stream_gets_the_same_reply_in_events() -> None:
    with (
        ScriptedServer(lambda _: Reply("hi", [("run", {"a": 1}), ("run", {"b": 2})])) as policy,
        httpx.Client(base_url=policy.endpoint.url) as http,
    ):
        body = {"messages": [{"role": "user", "content": "go"}]}
        whole = http.post("/chat/completions", json=body).json()
        *events, end = http.post("/chat/completions", json={**body, "stream": True}).text.strip().split("\n\n")
    assert end == "data: [DONE]"
    chunks = [json.loads(event.removeprefix("data: ")) for event in events]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "hi"
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert [call.pop("index") for call in calls] == [0, 1]
    assert calls == whole["choices"][0]["message"]["tool_calls"]
    assert [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]] == [None, "tool_calls"]
    assert chunks[-1]["usage"] == whole["usage"]


def test_the_server_answers_in_the_engines_form() -> None:
    with ScriptedServer(lambda _: Reply("hi", [("run", {"b": 1, "a": 2})])) as policy, httpx.Client(base_url=policy.endpoint.url) as http:
        assert http.get("/models").json()["data"][0] == {"id": "scripted", "object": "model", "max_model_len": 200_000}
        ask = {"messages": [{"role": "user", "content": "x"}]}
        full, bare = (http.post("/chat/completions", json={**ask, **extra}).json() for extra in (WANTED, {}))
    choice = full["choices"][0]
    assert full["prompt_token_ids"] == prompt_tokens(ask["messages"])
    assert full["prompt_token_ids"][-1] == ASSISTANT
    assert choice["token_ids"] == reply_tokens(choice["message"])
    assert [entry["logprob"] for entry in choice["logprobs"]["content"]] == [logprob(t, i) for i, t in enumerate(choice["token_ids"])]
    assert full["usage"]["completion_tokens"] == len(choice["token_ids"])
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "run", "arguments": '{"b": 1, "a": 2}'}
    assert "prompt_token_ids" not in bare
    assert "logprobs" not in bare["choices"][0]


def test_a_reply_is_cut_at_the_limit_asked_for() -> None:
    with ScriptedServer(lambda _: Reply("abcdef", [("run", {})])) as policy, httpx.Client(base_url=policy.endpoint.url) as http:
        ask = {"messages": [{"role": "user", "content": "x"}], **WANTED}
        inside, after = (http.post("/chat/completions", json={**ask, "max_tokens": n}).json()["choices"][0] for n in (3, 8))
    assert (inside["message"]["content"], inside["token_ids"], inside["finish_reason"]) == ("abc", list(b"abc"), "length")
    assert (after["message"]["content"], after["message"]["tool_calls"]) == ("abcdef", None)
    assert after["token_ids"] == [*b"abcdef", CALL, *b"r"]


def test_thinking_is_sampled_and_drops_out_of_a_history_that_does_not_repeat_it() -> None:
    with ScriptedServer(lambda _: Reply("yes", reasoning="hmm")) as policy, httpx.Client(base_url=policy.endpoint.url) as http:
        first = http.post("/chat/completions", json={"messages": [{"role": "user", "content": "x"}], **WANTED}).json()
        message = first["choices"][0]["message"]
        end = first["prompt_token_ids"] + first["choices"][0]["token_ids"]
        kept = prompt_tokens([{"role": "user", "content": "x"}, message, {"role": "user", "content": "y"}])
        stripped = prompt_tokens([{"role": "user", "content": "x"}, {"role": "assistant", "content": "yes"}])
    assert kept[: len(end)] == end
    assert stripped[: len(end)] != end


def test_errors_cuts_and_held_replies() -> None:
    hold = threading.Event()
    replies = iter([Reply("busy", status=503), Reply(fault="cut"), Reply("late", hold=hold), Reply("never", hold=threading.Event())])
    with (
        tempfile.TemporaryDirectory(prefix="lr-") as folder,
        ScriptedServer(lambda _: next(replies), socket=Path(folder) / "p.sock", max_model_len=100) as policy,
    ):
        ask = {"messages": [{"role": "user", "content": "x"}]}
        with httpx.Client(base_url=policy.endpoint.url, transport=httpx.HTTPTransport(uds=str(policy.endpoint.uds))) as http:
            busy = http.post("/chat/completions", json=ask)
            assert (busy.status_code, busy.json()["error"]["message"]) == (503, "busy")
            with pytest.raises(httpx.RemoteProtocolError):
                http.post("/chat/completions", json=ask)
            threading.Timer(0.05, hold.set).start()
            assert http.post("/chat/completions", json=ask).json()["choices"][0]["message"]["content"] == "late"
            with pytest.raises(httpx.ReadTimeout):
                http.post("/chat/completions", json=ask, timeout=0.2)
            assert policy.dropped.wait(5)
            long = http.post("/chat/completions", json={"messages": [{"role": "user", "content": "x" * 200}]})
            assert "maximum context length is 100 tokens" in long.json()["error"]["message"]
        assert len(policy.requests) == 5
    assert not list(Path(tempfile.gettempdir()).glob(f"{Path(folder).name}*"))


TOOLS = [{"type": "function", "function": {"name": name}} for name in ("bash", "read", "write")]


def test_the_solver_writes_runs_and_stops_in_a_tool_loop() -> None:
    script = solver({"Add two numbers.": "print(3)\n", "Other task.": "print(4)\n"})
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are here.\n  Working directory: /work\n"},
        {"role": "user", "content": [{"type": "text", "text": "Add two numbers.\n"}]},
    ]
    write = script({"messages": messages, "tools": TOOLS})
    assert write.tool_calls == [("write", {"content": "print(3)\n", "filePath": "/work/solution.py"})]
    messages += [{"role": "assistant"}, {"role": "tool", "content": "written"}]
    assert script({"messages": messages, "tools": TOOLS}).tool_calls[0][0] == "bash"
    messages += [{"role": "assistant"}, {"role": "tool", "content": ""}]
    assert script({"messages": messages, "tools": TOOLS}).tool_calls == ()
    title = script({"messages": [{"role": "system", "content": "You make titles."}, {"role": "user", "content": "Add two numbers."}]})
    assert title.text == "Solve the task"


def test_the_solver_answers_a_whole_file_request_and_takes_a_function() -> None:
    seen: list[str] = []

    def program(text: str) -> str:
        seen.append(text)
        return "print(5)\n"

    messages = [{"role": "system", "content": "Return a file listing."}, {"role": "user", "content": "solution.py\n```\n```"}]
    assert solver(program)({"messages": messages}).text == "solution.py\n```\nprint(5)\n```"
    assert "file listing" in seen[0]
