"""Sessions without an engine: write down what was asked and answered, get the calls that capture would have made.

For tests of an adapter's `classify`, of labels and of rows.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from longrein.capture.trace import Trace
from longrein.model import ModelCall, Usage

Message = Mapping[str, Any]


@frozen
class Exchange:
    """One request and its reply."""

    id: str
    messages: Sequence[Message]
    reply: Message
    tools: Sequence[Mapping[str, Any]] = ()
    call: Mapping[str, Any] = field(factory=dict)
    """Further fields of the ModelCall: delivered, error, problem, finish_reason, version_first, ..."""


def message(role: str, content: str, **more: Any) -> Message:
    """Return a chat message."""
    return {"role": role, "content": content, **more}


def tool_call(name: str, **arguments: Any) -> Message:
    """Return an assistant message that calls one tool."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return message("assistant", "", tool_calls=[{"id": "call_1", "type": "function", "function": function}])


STOP, NEWLINE = 1, 2
"""The toy template's stop token, which the model samples, and the newline after it, which the template adds."""


def prompt_ids(messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] = ()) -> list[int]:
    """Return the ids of a whole prompt, up to where the model begins to answer: a token for each word."""
    ids = _words(json.dumps(list(tools))) if tools else []
    for item in messages:
        ids += [*_words(f"<|{item['role']}|>"), *reply_ids(item), NEWLINE]
    return ids + _words("<|assistant|>")


def reply_ids(reply: Message) -> list[int]:
    """Return the ids of a reply, the stop token included."""
    calls = [call["function"] for call in reply.get("tool_calls") or ()]
    said = [str(reply.get("content") or ""), *(json.dumps([f["name"], json.loads(f["arguments"])]) for f in calls)]
    return [*_words(" ".join(said)), STOP]


def _words(text: str) -> list[int]:
    return [10 + zlib.crc32(word.encode()) // 4 for word in re.findall(r"\w+|[^\w\s]+", text)]


def capture(exchanges: Sequence[Exchange]) -> Trace:
    """Return the trace of a session in which the exchanges arrived in this order.

    Each sampled token has a log-probability of its own: -(i + 1) - j / 1000 for token j of the call in place i.
    """
    trace = Trace()
    for index, exchange in enumerate(exchanges):
        failed = exchange.call.get("error") is not None
        sampled = [] if failed else reply_ids(exchange.reply)
        given: dict[str, Any] = {
            "sampled_ids": sampled,
            "logprobs": [-(index + 1) - position / 1000 for position in range(len(sampled))],
            "usage": Usage(completion_tokens=len(sampled)),
            "reply": {} if failed else exchange.reply,
            "finish_reason": None if failed else "stop",
            "tools_key": trace.add_tools(list(exchange.tools)) if exchange.tools else None,
            **exchange.call,
        }
        call = ModelCall(id=exchange.id, index=index, parent_id=None, context_ids=(), prompt_len=0, **given)
        trace.add(call, prompt_ids(exchange.messages, exchange.tools), exchange.messages)
    return trace
