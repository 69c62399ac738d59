"""How conversations went on: by exact tokens, by a fork, or with a history that had drifted."""

from __future__ import annotations

from itertools import chain, takewhile
from typing import Literal

from attrs import frozen

from longrein.agent import AgentAdapter
from longrein.model import Finding, ModelCall, Trajectory, Turn
from longrein.turns import messages as msg
from longrein.turns.links import Links

Kind = Literal["continued", "forked", "drifted"]

_OPENING = 4
"""Tokens of a prompt that may belong to the reasoning: some templates open it (`<think>`) for the model."""


@frozen
class Transition:
    """A call that goes on from an earlier one.

    `continued`: its prompt repeats all tokens of the earlier call and adds `n_tokens`.
    `forked`: the same, but another call went on from there before; `n_tokens` are shared with it.
    `drifted`: its messages go on, its tokens do not; `n_tokens` of the earlier call's are not repeated.
    """

    call_id: str
    before_id: str
    kind: Kind
    n_tokens: int
    dropped_thinking: bool = False
    """True when the earlier reply held reasoning that is gone."""


def transitions(trajectory: Trajectory) -> list[Transition]:
    """Return the transitions of all calls but the first of each conversation, in order of arrival."""
    links = Links([turn.call for turn in trajectory])
    found = []
    for turn in trajectory:
        call, before_id = turn.call, links.before[turn.call.id]
        if before_id is None:
            continue
        before = links.by_id[before_id]
        if before_id == call.parent_id:
            if links.children[before_id][0] == call.id:
                found.append(Transition(call.id, before_id, "continued", len(call.context_ids)))
            else:
                found.append(Transition(call.id, before_id, "forked", _end(before)))
            continue
        path = trajectory.path(before_id)
        kept = _repeated(path, trajectory.path(call.id))
        found.append(Transition(call.id, before_id, "drifted", _end(before) - kept, _lost_thinking(path, kept)))
    return found


def history_findings(trajectory: Trajectory, adapter: AgentAdapter) -> list[Finding]:
    """Return a finding when the agent's history does not do what its adapter declares.

    `append_only` forbids every drift, `strips_thinking` every drift but behind a reply whose reasoning was dropped;
    `rewrites` allows any. A session in which a declared rewrite did not happen shows nothing.
    """
    declared = adapter.capabilities.history
    if declared == "rewrites":
        return []
    drifts = [t for t in transitions(trajectory) if t.kind == "drifted"]
    if declared == "strips_thinking":
        drifts = [t for t in drifts if not t.dropped_thinking]
    if not drifts:
        return []
    worst = max(drifts, key=lambda t: t.n_tokens)
    message = (
        f"declares history {declared!r}, but {len(drifts)} of {len(trajectory)} calls went on with other tokens than were sampled; "
        f"the most at call {worst.call_id}, which does not repeat {worst.n_tokens} tokens of call {worst.before_id}. "
        f"Every such call starts a row of its own; declare 'rewrites' if that is what the agent does"
    )
    return [Finding(f"agent:{adapter.name}", message)]


def _repeated(path: list[Turn], other: list[Turn]) -> int:
    """Return how many leading tokens of the calls of `path` the prompt of the last call of `other` repeats."""
    n_common = sum(1 for _ in takewhile(lambda pair: pair[0] is pair[1], zip(path, other, strict=False)))
    start = _end(path[n_common - 1].call) if n_common else 0
    prompt = chain(*(chain(t.call.context_ids, t.call.sampled_ids) for t in other[n_common:-1]), other[-1].call.context_ids)
    known = chain.from_iterable(chain(t.call.context_ids, t.call.sampled_ids) for t in path[n_common:])
    return start + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, prompt, strict=False)))


def _lost_thinking(path: list[Turn], kept: int) -> bool:
    """Return whether the first token that is not repeated opens a reply that holds reasoning."""
    call = next((t.call for t in path if _end(t.call) > kept), None)
    return call is not None and kept >= call.prompt_len - _OPENING and msg.reasons({**call.reply, "role": "assistant"})


def _end(call: ModelCall) -> int:
    return call.prompt_len + len(call.sampled_ids)
