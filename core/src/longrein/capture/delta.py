"""Request messages and tool manifests, each stored once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

Message = Mapping[str, Any]

_RECENT = 4
"""Calls looked at, besides the token parent, for the longest repeated history: concurrent conversations interleave."""


class Histories:
    """The request messages of a session's calls; a message that a later request repeats is held once."""

    def __init__(self) -> None:
        self._lists: dict[str, list[Message]] = {}
        self._replies: dict[str, Message] = {}

    def add(self, call_id: str, messages: Sequence[Message], reply: Message, *, near: str | None) -> tuple[str | None, int]:
        """Store a call's messages; return the call that they repeat and how many of its leading messages.

        Args:
            call_id: the new call.
            messages: all its request messages.
            reply: the message that the policy answered.
            near: a call to try first.
        """
        candidates = [near, *list(self._lists)[: -_RECENT - 1 : -1]]
        best, kept = None, 0
        for candidate in candidates:
            if candidate is None or candidate not in self._lists:
                continue
            known = self._lists[candidate]
            n_same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, messages, strict=False)))
            if n_same > kept:
                best, kept = candidate, n_same
            if kept == len(known) and candidate == near:
                break
        shared = self._lists[best][:kept] if best else []
        self._lists[call_id] = [*shared, *messages[kept:]]
        self._replies[call_id] = reply
        return best, kept

    def continued(self, messages: Sequence[Message]) -> str | None:
        """Return the call whose messages and reply are the longest beginning of `messages`: linking without token ids."""
        best, length = None, 0
        for call_id, known in self._lists.items():
            n = len(known)
            if length < n < len(messages) and _alike(messages[n], self._replies[call_id]) and known == messages[:n]:
                best, length = call_id, n
        return best


def _alike(echoed: Message, reply: Message) -> bool:
    try:
        return bool(reply) and _essence(echoed) == _essence(reply)
    except (TypeError, LookupError, AttributeError):  # the agent sent a message of no known form
        return False


def _essence(message: Message) -> tuple[Any, ...]:
    calls = [(call["function"]["name"], _parsed(call["function"].get("arguments"))) for call in message.get("tool_calls") or []]
    return message["role"], message.get("content") or "", calls


def _parsed(arguments: Any) -> Any:
    try:
        return json.loads(arguments)
    except (TypeError, ValueError):
        return arguments


def manifest_key(tools: Sequence[Mapping[str, Any]]) -> str:
    """Return a short key that is equal exactly for equal tool manifests."""
    return hashlib.sha256(json.dumps(tools, sort_keys=True).encode()).hexdigest()[:16]
