"""Deterministic tokens for the scripted endpoint: bytes, and special tokens for structure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TOOLS, SYSTEM, USER, ASSISTANT, TOOL, THINK, CALL, ARGUMENTS, END = range(256, 265)
VOCABULARY = 265
_ROLES = {"system": SYSTEM, "developer": SYSTEM, "user": USER, "assistant": ASSISTANT, "tool": TOOL}


def prompt_tokens(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None = None) -> list[int]:
    """Return the tokens of a chat request, ending where the assistant is to speak."""
    ids = [TOOLS, *_bytes(_canonical(tools)), END] if tools else []
    for message in messages:
        ids.append(_ROLES[message["role"]])
        ids += reply_tokens(message)
    ids.append(ASSISTANT)
    return ids


def reply_tokens(message: Mapping[str, Any], *, end: bool = True) -> list[int]:
    """Return the tokens of one message without its role, as the policy samples them.

    The arguments of tool calls are parsed and written canonically, as vLLM's chat templates do: agents echo them re-serialised.
    """
    ids: list[int] = []
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning:
        ids += [THINK, *_bytes(reasoning), THINK]
    ids += _bytes(_text(message.get("content")))
    for call in message.get("tool_calls") or []:
        function = call["function"]
        ids += [CALL, *_bytes(function["name"]), ARGUMENTS, *_bytes(_parsed(function["arguments"]))]
    if end:
        ids.append(END)
    return ids


def _bytes(text: str) -> list[int]:
    return list(text.encode())


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _parsed(arguments: str) -> str:
    try:
        return _canonical(json.loads(arguments))
    except json.JSONDecodeError:
        return arguments


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""
