"""Where the replies of a session are said again inside other messages, found in one pass over the distinct text."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from longrein.model import ModelCall
from longrein.turns import messages as msg
from longrein.turns.links import TELLING, Links

_QUOTE = 200
"""Characters that make a quote; transcripts cut what is longer."""


class Quotes:
    """Replies that other calls quote, were asked with, or received as tool results."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self.quoted: dict[int, set[str]] = defaultdict(set)
        """Message (by number; not an assistant's) to the calls whose reply is part of it."""
        self.results: dict[str, set[int]] = defaultdict(set)
        """Call to the tool results that are mostly its reply."""
        self.retold: dict[int, set[int]] = defaultdict(set)
        """Message that the agent's program wrote (system or user) to the tool results that it retells."""
        self._find()
        self._said: dict[str, set[str]] = defaultdict(set)
        for call_id, number in links.reply.items():
            for string in map(msg.flat, msg.strings(links.messages[number])):
                if len(string) >= TELLING:
                    self._said[string].add(call_id)

    def sources(self, call: ModelCall) -> set[str]:
        """Return the calls whose reply says, word for word, a block of text that `call` was asked with as a user."""
        users = [self._links.messages[n] for n in self._links.history[call.id] if msg.role(self._links.messages[n]) == "user"]
        return {source for user in users for block in msg.blocks(user) for source in self._said.get(msg.flat(block), ())}

    def said_in(self, call: ModelCall) -> list[set[str]]:
        """Return for each message of a request the other calls whose reply it is or has within."""
        pairs = zip(self._links.said_in(call.id), self._links.heard[call.id], strict=True)
        return [{*said, *self.quoted.get(number, ())} - {call.id} for said, number in pairs]

    def heard(self, call: ModelCall) -> set[str]:
        """Return the other calls whose replies, or the tool results they were given, stand in the request of `call`."""
        retold = {source for n in self._links.heard[call.id] for source in self.retold.get(n, ())}
        given = {other.id for other in self._links.calls if not retold.isdisjoint(self._links.heard[other.id])} if retold else set()
        return set().union(*self.said_in(call), given) - {call.id}

    @cached_property
    def holders(self) -> dict[str, list[ModelCall]]:
        """By call the others whose request holds its reply, as a message or within one that is no tool result."""
        holders: dict[str, list[ModelCall]] = defaultdict(list)
        for call in self._links.calls:
            for source in self.told(call):
                holders[source].append(call)
        return holders

    def told(self, call: ModelCall) -> set[str]:
        """Return the other calls whose reply stands in the request of `call` other than in a tool result."""
        messages = (self._links.messages[n] for n in self._links.heard[call.id])
        return {s for said, message in zip(self.said_in(call), messages, strict=True) if msg.role(message) != "tool" for s in said}

    def _find(self) -> None:
        sayings = [(number, msg.flat(msg.text(self._links.messages[number]))) for number in self._quotable()]
        by_head: dict[str, list[tuple[int, str]]] = defaultdict(list)
        for number, said in sayings:
            if len(said) >= TELLING:
                by_head[said[:TELLING]].append((number, said))
        if not by_head:
            return
        for number, message in enumerate(self._links.messages):
            if msg.role(message) == "assistant":
                continue
            text = msg.flat(msg.text(message))
            for start in range(len(text) - TELLING + 1):
                for source, said in by_head.get(text[start : start + TELLING], ()):
                    if text.startswith(said[:_QUOTE], start):
                        self._note(number, source, mostly=2 * len(said) >= len(text))

    def _quotable(self) -> set[int]:
        results = {n for n, message in enumerate(self._links.messages) if msg.role(message) == "tool"}
        return results | set(self._links.reply.values())

    def _note(self, number: int, source: int, *, mostly: bool) -> None:
        role = msg.role(self._links.messages[number])
        for call_id in self._links.speakers.get(source, ()):
            self.quoted[number].add(call_id)
            if role == "tool" and mostly:
                self.results[call_id].add(number)
        if role != "tool" and source not in self._links.speakers:
            self.retold[number].add(source)
