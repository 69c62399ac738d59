"""What a judge is shown of rollouts: their messages without repetition, and what became of them.

Nothing comes from the task set's hidden data: of the verdict only its status is shown.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Literal

from attrs import frozen

from longrein.model import Rollout, Trajectory
from longrein.turns import messages as msg
from longrein.turns.acts import acts
from longrein_ruler.text import clean

Kind = Literal["task", "action", "result", "talk"]
Message = Mapping[str, Any]


@frozen
class Part:
    """One message as text."""

    kind: Kind
    text: str


@frozen
class Trace:
    """What rollouts did that read the same: they are shown once and share a score."""

    rollout_ids: tuple[str, ...]
    summary: str
    parts: tuple[Part, ...]
    """After what all rollouts of the group have in common."""
    key: str
    """Hash of the content, the same in every run."""


def traces(rollouts: Sequence[Rollout]) -> tuple[list[Part], list[Trace]]:
    """Return what all rollouts begin with, and what each did after it, in an order that depends on content alone."""
    said = [_conversation(rollout.trajectory) for rollout in rollouts]
    shared = _common([[identity for identity, _ in one] for one in said]) if len(said) > 1 else 0
    found: dict[tuple[str, tuple[Part, ...]], list[str]] = {}
    for rollout, one in zip(rollouts, said, strict=True):
        found.setdefault((_summary(rollout), tuple(part for _, part in one[shared:])), []).append(rollout.id)
    common = [part for _, part in said[0][:shared]]
    made = [Trace(tuple(ids), summary, parts, _key(common, summary, parts)) for (summary, parts), ids in found.items()]
    return common, sorted(made, key=lambda trace: trace.key)


def _conversation(trajectory: Trajectory) -> list[tuple[Hashable, Part]]:
    """Return the messages of an agent's own turns in order, each once, also where the agent rewrote its history."""
    shown: list[tuple[Hashable, Part]] = []
    identities: dict[int, Hashable] = {}

    def identity_of(message: Message) -> Hashable:
        # By object: a message is one object in all the requests that repeat it, and a session of 300 calls repeats 90,000.
        if id(message) not in identities:
            identities[id(message)] = msg.identity(message)
        return identities[id(message)]

    for turn in trajectory:
        if turn.label.label not in ("train", "context"):
            continue
        asked = [(identity_of(message), message) for message in trajectory.messages(turn.call.id)]
        n_kept = _common([[identity for identity, _ in shown], [identity for identity, _ in asked]])
        known = set() if n_kept == len(shown) else {identity for identity, _ in shown}
        new = [(identity, message) for identity, message in asked[n_kept:] if identity not in known]
        began = bool(shown)
        for identity, message in new:
            began = began or msg.role(message) == "assistant"
            shown.append((identity, _part(message, began)))
        reply = {"role": "assistant", **turn.call.reply}
        shown.append((msg.identity(reply), Part("action" if acts(turn.call) else "talk", _text(reply))))
    return shown


def _part(message: Message, began: bool) -> Part:
    role = msg.role(message)
    kind: Kind = "talk"
    if role == "assistant":
        kind = "action" if message.get("tool_calls") else "talk"
    elif role != "system":
        kind = "result" if began else "task"
    return Part(kind, _text(message))


def _text(message: Message) -> str:
    calls = [f"{name}({arguments})" for name, arguments in msg.tool_calls(message)]
    return clean("\n".join([f"[{msg.role(message)}]", *filter(None, [msg.text(message)]), *calls]))


def _summary(rollout: Rollout) -> str:
    kinds = Counter(action.kind for action in rollout.actions)
    actions = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())) or "none"
    return f"verifier: {rollout.verdict.status}; session: {rollout.outcome.kind}; actions: {actions}"


def _common(lists: Sequence[Sequence[Hashable]]) -> int:
    """Return how many items all lists begin with."""
    count = 0
    for items in zip(*lists, strict=False):
        if len(set(items)) > 1:
            break
        count += 1
    return count


def _key(common: Sequence[Part], summary: str, parts: Sequence[Part]) -> str:
    content = [[part.text for part in common], summary, [part.text for part in parts]]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()
