"""How the calls of a session hang together: by tokens, and by messages where the tokens do not match."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

from longrein.model import ModelCall
from longrein.turns import messages as msg

SIMILAR = 0.7
"""Share of words that two renderings of one system prompt have in common; agents re-render dates and file lists."""
TELLING = 20
"""Characters from which on a text found again elsewhere is no accident."""


class Links:
    """The calls of a session with every relation that labels and the audit need.

    Nothing here depends on the order in which calls of different conversations arrived.
    """

    def __init__(self, calls: Sequence[ModelCall]) -> None:
        self.calls = tuple(calls)
        self.by_id = {call.id: call for call in calls}
        self.messages: list[msg.Message] = []
        """Every distinct message of the session; the lists below name them by position."""
        self.system: dict[str, str] = {}
        self.heard: dict[str, list[int]] = {}
        """Call id to all its request messages."""
        self.history: dict[str, list[int]] = {}
        """Call id to its request messages after the leading system messages."""
        self.reply: dict[str, int] = {}
        """Call id to its reply, for replies that say something."""
        self._prefix: dict[str, list[int]] = {}
        """Call id to a number for each beginning of its history, equal exactly for equal beginnings."""
        self._read_messages()
        self._asking: dict[int, list[str]] = defaultdict(list)
        for call_id, prefix in self._prefix.items():
            self._asking[prefix[-1] if prefix else -1].append(call_id)
        self.speakers: dict[int, set[str]] = defaultdict(set)
        """Message to the calls whose reply it is."""
        for call_id, number in self.reply.items():
            self.speakers[number].add(call_id)
        self.family = _families(self.system)
        """Call id to the number of its kind of system prompt."""
        self.children: dict[str, list[str]] = defaultdict(list)
        self.carriers: dict[str, list[str]] = defaultdict(list)
        """Call id to calls of its family that hold its reply, or an altered one, as an assistant message."""
        self.carried: dict[str, str | None] = {}
        """Call id to the last call whose reply it holds so."""
        self.answered: set[str] = set()
        """Calls with a carrier in which their own last message stands before their reply."""
        self.before: dict[str, str | None] = {}
        """Call id to the call that it goes on from: the last one whose reply it holds, else its parent."""
        self.after: dict[str, list[str]] = defaultdict(list)
        """The inverse of `before`."""
        self._answers: dict[tuple[int, int], list[str]] = {}
        self._read: dict[tuple[int, int], tuple[str | None, int]] = {}
        for call in calls:
            self._link(call)
        self.asked_again = {call.id: again for call in calls if (again := self._asked_again(call)) is not None}
        """Call id to a later call that asks the same and more, as if there had been no reply."""
        self.question = self._twins()
        """Call id to a number that calls share which ask the same."""
        self.conversation = self._conversations()
        """Call id to the number of its conversation."""

    def used(self, call_id: str) -> bool:
        """Return whether another call goes on from this reply."""
        return bool(self.children.get(call_id) or self.carriers.get(call_id))

    def said_in(self, call_id: str) -> list[Collection[str]]:
        """Return for each message of a request the calls that said it.

        A policy may say the same again and again: where a message stands below the question that it answered, it is that call's.
        """
        family, history = self.family[call_id], self.history[call_id]
        answers = [self._answers.get((family, prefix), []) for prefix in self._prefix[call_id]]
        preamble: list[Collection[str]] = [()] * (len(self.heard[call_id]) - len(history))
        return preamble + [known or self.speakers.get(number, ()) for known, number in zip(answers, history, strict=True)]

    def went_on_after(self, call_id: str, index: int) -> bool:
        """Return whether a call that goes on from `call_id`, near or far, arrived after `index`."""
        stack, seen = [call_id], {call_id}
        while stack:
            for following in self.after.get(stack.pop(), ()):
                if self.by_id[following].index > index:
                    return True
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
        return False

    def _read_messages(self) -> None:
        known: dict[Hashable, int] = {}
        beginnings: dict[tuple[int, int], int] = {}

        def number(message: msg.Message) -> int:
            key = msg.identity(message)
            if key not in known:
                known[key] = len(self.messages)
                self.messages.append(message)
            return known[key]

        for call in self._bases_first():
            base, kept = call.messages_base, call.messages_kept
            self.heard[call.id] = heard = (self.heard[base][:kept] if base else []) + [number(message) for message in call.messages]
            n_system = next((i for i, n in enumerate(heard) if msg.role(self.messages[n]) != "system"), len(heard))
            self.system[call.id] = "\n".join(msg.text(self.messages[n]) for n in heard[:n_system])
            self.history[call.id] = heard[n_system:]
            self._prefix[call.id] = prefix = self._prefix[base][: max(0, kept - n_system)] if base else []
            for n in heard[n_system + len(prefix) :]:
                prefix.append(beginnings.setdefault((prefix[-1] if prefix else -1, n), len(beginnings)))
            if call.reply and (msg.text(call.reply) or msg.tool_calls(call.reply)):
                self.reply[call.id] = number({**call.reply, "role": "assistant"})

    def _bases_first(self) -> Iterator[ModelCall]:
        """Yield each call after the one whose messages it repeats; that one may have arrived later and ended earlier."""
        for call in self.calls:
            chain: list[ModelCall] = []
            at: str | None = call.id
            while at is not None and at not in self.heard:
                chain.append(self.by_id[at])
                at = chain[-1].messages_base
            yield from reversed(chain)

    def _link(self, call: ModelCall) -> None:
        """Find what a call goes on from, by tokens and by messages; beginnings that an earlier call shares are not read again."""
        family, prefix = self.family[call.id], self._prefix[call.id]
        n_read = next((n for n in range(len(prefix), 0, -1) if (family, prefix[n - 1]) in self._read), 0)
        before, reached = self._read[family, prefix[n_read - 1]] if n_read else (None, -1)
        for position in range(n_read, len(prefix)):
            if found := self._saying(call, position):
                before, reached = max(found, key=lambda i: (len(self.history[i]) == position, self.by_id[i].index)), position
                for other in found:
                    self.carriers[other].append(call.id)
            self._read[family, prefix[position]] = (before, reached)
        self.carried[call.id] = before
        if call.parent_id is not None:
            self.children[call.parent_id].append(call.id)
            before = call.parent_id if len(self.history[call.parent_id]) >= reached else before
        self.before[call.id] = before
        if before is not None:
            self.after[before].append(call.id)

    def _saying(self, call: ModelCall, position: int) -> list[str]:
        """Return the calls of one family that said the assistant message at `position` of a history.

        These are the calls that said it word for word, best those that were asked exactly what stands before it, then those whose
        own last message does; else those that were asked exactly that, whose reply the agent has altered.
        """
        history, family = self.history[call.id], self.family[call.id]
        if position == 0 or msg.role(self.messages[history[position]]) != "assistant":
            return []
        asked = [i for i in self._asking.get(self._prefix[call.id][position - 1], ()) if self.family[i] == family]
        said = [i for i in self.speakers.get(history[position], ()) if i != call.id and self.family[i] == family]
        answers = [i for i in said if i in asked] or [i for i in said if self.history[i][-1:] == [history[position - 1]]]
        self.answered.update(answers)
        self._answers[family, self._prefix[call.id][position]] = answers
        return answers or (said if self._telling(history[position]) else []) or asked

    def _asked_again(self, call: ModelCall) -> str | None:
        """Return a later call that asked the same and more in place of a reply that nothing went on from."""
        asked = self._prefix[call.id]
        if not asked or self.used(call.id):
            return None
        for other in self.calls:
            later, kin = self._prefix[other.id], self.family[other.id] == self.family[call.id]
            if kin and other.index > call.index and len(later) > len(asked) and later[len(asked) - 1] == asked[-1]:
                return other.id
        return None

    def _telling(self, number: int) -> bool:
        message = self.messages[number]
        return len(msg.text(message)) >= TELLING or bool(msg.tool_calls(message))

    def _twins(self) -> dict[str, int]:
        """Join calls that ask the same: by tokens, or by messages below one kind of system prompt."""
        groups = _Groups(self.by_id)
        first: dict[Hashable, str] = {}
        for call in self.calls:
            if call.prompt_len:
                groups.join(call.id, first.setdefault((call.parent_id, tuple(call.context_ids)), call.id))
            if prefix := self._prefix[call.id]:
                groups.join(call.id, first.setdefault(("messages", self.family[call.id], prefix[-1]), call.id))
        return groups.numbers()

    def _conversations(self) -> dict[str, int]:
        """Join calls that go on from one another, that carry one another's replies, and that ask the same."""
        groups = _Groups(self.by_id)
        first: dict[int, str] = {}
        for call in self.calls:
            groups.join(call.id, first.setdefault(self.question[call.id], call.id))
            for other in (call.parent_id, self.carried[call.id], self.asked_again.get(call.id), *self.carriers.get(call.id, ())):
                groups.join(call.id, call.id if other is None else other)
        return groups.numbers()


class _Groups:
    """Union-find over call ids."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._up = {i: i for i in ids}

    def _top(self, item: str) -> str:
        while self._up[item] != item:
            self._up[item] = item = self._up[self._up[item]]
        return item

    def join(self, one: str, other: str) -> None:
        self._up[self._top(one)] = self._top(other)

    def numbers(self) -> dict[str, int]:
        tops: dict[str, int] = {}
        return {item: tops.setdefault(self._top(item), len(tops)) for item in self._up}


def _families(systems: dict[str, str]) -> dict[str, int]:
    """Put system prompts that are renderings of one another under one number; an empty one is a family of its own."""
    leaders: list[frozenset[str]] = []
    number: dict[str, int] = {}
    for prompt in sorted(set(systems.values()), key=lambda s: (len(s), s)):
        words = frozenset(re.findall(r"[^\W\d]+", prompt))
        for i, leader in enumerate(leaders):
            if words == leader or len(words & leader) >= SIMILAR * len(words | leader) > 0:
                number[prompt] = i
                break
        else:
            number[prompt] = len(leaders)
            leaders.append(words)
    return {call_id: number[prompt] for call_id, prompt in systems.items()}
