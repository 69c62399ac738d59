"""Compare chat messages the way agents echo them: re-serialised arguments, dropped reasoning, parts or plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

Message = Mapping[str, Any]

_THINKING = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_ESCAPES = re.compile(r'[\\"]')


def role(message: Message) -> str:
    """Return the role; developer counts as system, and a reply without one is the assistant's."""
    given = str(message.get("role") or "assistant")
    return "system" if given == "developer" else given


def blocks(message: Message) -> list[str]:
    """Return the text blocks of a message; images and other parts are left out."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [str(part.get("text") or "") for part in parts if isinstance(part, Mapping) and "text" in part]


def text(message: Message) -> str:
    """Return the text of a message; an assistant's without its reasoning, which many agents do not send back."""
    joined = "".join(blocks(message))
    return (_THINKING.sub("", joined) if role(message) == "assistant" else joined).strip()


def reasons(message: Message) -> bool:
    """Return whether a message holds reasoning, as a field or between think tags."""
    return any(message.get(key) for key in ("reasoning_content", "reasoning")) or bool(_THINKING.search("".join(blocks(message))))


def tool_calls(message: Message) -> list[tuple[str, str]]:
    """Return (name, arguments) of each tool call, arguments as canonical JSON where they are JSON."""
    functions = [call.get("function") or {} for call in message.get("tool_calls") or () if isinstance(call, Mapping)]
    return [(str(function.get("name") or ""), _canonical(function.get("arguments"))) for function in functions]


def identity(message: Message) -> Hashable:
    """Return what two messages have in common exactly when one is an echo of the other."""
    return role(message), text(message), tuple(tool_calls(message))


def flat(string: str) -> str:
    """Return text without quotes, backslashes and runs of blanks: agents quote and wrap what they pass on."""
    return " ".join(_ESCAPES.sub("", string).split())


def strings(message: Message) -> Iterator[str]:
    """Yield every text that a reply says: its content and each string within its tool calls' arguments, stripped."""
    yield text(message)
    for _, arguments in tool_calls(message):
        try:
            yield from _leaves(json.loads(arguments))
        except ValueError:
            yield arguments


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)


def _canonical(arguments: Any) -> str:
    try:
        return json.dumps(json.loads(arguments) if isinstance(arguments, str) else arguments, sort_keys=True)
    except (TypeError, ValueError):
        return str(arguments).strip()
