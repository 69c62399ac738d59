"""Turns and trajectories: model calls with their label, reason and place in the conversation graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, get_args

from attrs import field, frozen

from longrein.model.call import ModelCall

Label = Literal["train", "context", "aux", "discarded", "invalid"]
LABELS: tuple[Label, ...] = get_args(Label)


@frozen
class TurnLabel:
    """What becomes of a turn, and why."""

    label: Label = field()
    reason: str
    acts: bool | None = None
    """Whether the reply acts on the workspace, where an adapter knows; the policy `actions_only` trains such turns."""

    @label.validator
    def _known(self, _attribute: Any, value: str) -> None:
        if value not in LABELS:
            raise ValueError(f"unknown label {value!r}; known: {', '.join(LABELS)}")


@frozen
class Turn:
    """A ModelCall with its label. `decided_by` names capture, structure, the policy, an agent or a plugin."""

    call: ModelCall
    label: TurnLabel
    decided_by: str


@frozen
class Trajectory:
    """All turns of one session in order of arrival, with the graph they form."""

    turns: tuple[Turn, ...] = ()
    tools: Mapping[str, Sequence[Mapping[str, Any]]] = field(factory=dict)
    """Tool manifests by key, each stored once."""

    @cached_property
    def _by_id(self) -> Mapping[str, Turn]:
        return {turn.call.id: turn for turn in self.turns}

    def turn(self, call_id: str) -> Turn:
        """Return the turn of a call id; KeyError when there is none."""
        return self._by_id[call_id]

    def path(self, call_id: str) -> list[Turn]:
        """Return the turns from the root to `call_id`, both included."""
        path = []
        current: str | None = call_id
        while current is not None:
            turn = self._by_id[current]
            path.append(turn)
            current = turn.call.parent_id
        return path[::-1]

    def prompt_ids(self, call_id: str) -> list[int]:
        """Return the whole prompt of a call, rebuilt from the deltas."""
        ids: list[int] = []
        path = self.path(call_id)
        for turn in path:
            ids.extend(turn.call.context_ids)
            if turn is not path[-1]:
                ids.extend(turn.call.sampled_ids)
        return ids

    def messages(self, call_id: str) -> list[Mapping[str, Any]]:
        """Return the whole list of request messages of a call, rebuilt from the deltas."""
        chain = [self._by_id[call_id].call]
        while (base := chain[-1].messages_base) is not None:
            chain.append(self._by_id[base].call)
        messages = list(chain[-1].messages)
        for call in reversed(chain[:-1]):
            messages = messages[: call.messages_kept] + list(call.messages)
        return messages

    def children(self) -> dict[str | None, list[str]]:
        """Return call ids by parent id (None for roots), in order of arrival."""
        children: dict[str | None, list[str]] = {}
        for turn in self.turns:
            children.setdefault(turn.call.parent_id, []).append(turn.call.id)
        return children

    def __iter__(self) -> Iterator[Turn]:
        return iter(self.turns)

    def __len__(self) -> int:
        return len(self.turns)
