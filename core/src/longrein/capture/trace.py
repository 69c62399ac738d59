"""The calls of a session as deltas, linked by exact token prefix."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from longrein.capture.delta import Histories, manifest_key
from longrein.capture.link import WIDTH, Linker, Node, packed
from longrein.model import ModelCall


class Trace:
    """Calls by order of arrival; a call that continues another holds only what is new in it."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []
        self.tools: dict[str, list[Any]] = {}
        self._linker = Linker()
        self._nodes: dict[str, Node] = {}
        self._histories = Histories()
        self._ids: dict[int, int] = {}

    def add(self, call: ModelCall, prompt_ids: Sequence[int], messages: Sequence[Mapping[str, Any]]) -> None:
        """Store a call that has ended.

        Args:
            call: everything but its links; `sampled_ids` as returned.
            prompt_ids: the whole prompt, empty when the engine gave none: such calls are linked by their messages.
            messages: all request messages.
        """
        context: Sequence[int] = prompt_ids
        if prompt_ids:
            node, adopted = self._linker.add(call.id, call.index, packed(prompt_ids), packed(call.sampled_ids))
            self._nodes[call.id] = node
            parent_id = node.parent.call_id if node.parent else None
            context = prompt_ids[node.parent.end // WIDTH if node.parent else 0 :]
            for child in adopted:
                self._adopt(child, node)
        else:
            parent_id = self._histories.continued(messages)
        base, kept = self._histories.add(call.id, messages, call.reply, near=parent_id)
        insort(
            self.calls,
            evolve(
                call,
                parent_id=parent_id,
                prompt_len=len(prompt_ids),
                context_ids=self._shared(context),
                sampled_ids=self._shared(call.sampled_ids),
                messages_base=base,
                messages_kept=kept,
                messages=tuple(messages[kept:]),
            ),
            key=_index,
        )

    def add_tools(self, tools: list[Any]) -> str:
        """Store a tool manifest once; return its key."""
        key = manifest_key(tools)
        self.tools.setdefault(key, tools)
        return key

    def undelivered(self, index: int) -> None:
        """Note that the client of a call had gone before its reply was handed over."""
        position = bisect_left(self.calls, index, key=_index)
        if position < len(self.calls) and self.calls[position].index == index:
            call = self.calls[position]
            self.calls[position] = evolve(call, delivered=False)
            if call.id in self._nodes:
                self._nodes[call.id].delivered = False

    def _adopt(self, child: Node, parent: Node) -> None:
        position = bisect_left(self.calls, child.index, key=_index)
        call = self.calls[position]
        n_new = (child.prompt_end - parent.end) // WIDTH
        self.calls[position] = evolve(call, parent_id=parent.call_id, context_ids=call.context_ids[len(call.context_ids) - n_new :])

    def _shared(self, ids: Sequence[int]) -> tuple[int, ...]:
        # One int object for each id of the vocabulary: an agent that rewrites its history stores whole prompts again and again.
        return tuple(map(self._ids.setdefault, ids, ids))


def _index(call: ModelCall) -> int:
    return call.index
