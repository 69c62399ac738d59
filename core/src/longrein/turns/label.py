"""Give every model call of a session its label, reason and author."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from longrein.config import TurnsConfig
from longrein.model import ModelCall, PublicTask, Trajectory, Turn, TurnLabel
from longrein.turns.policy import apply_policy
from longrein.turns.structure import Proposal, propose

Decide = Callable[[Turn, Trajectory, TurnLabel], tuple[TurnLabel, str]]
"""Asks the adapter and the plugins: (turn, trajectory, structural proposal) to (label, who decided)."""


_DEFAULTS = TurnsConfig()


def label_calls(
    calls: Sequence[ModelCall],
    tools: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    task: PublicTask,
    decide: Decide | None = None,
    options: TurnsConfig = _DEFAULTS,
) -> Trajectory:
    """Return the trajectory of a session with a label, a reason and an author for every call.

    Capture decides first and for good: a call with a problem is invalid, one without a reply discarded. Structure
    proposes for the rest, `decide` may answer otherwise, and the policy can then only turn train into context.

    Args:
        calls: the session's calls in order of arrival.
        tools: tool manifests by key.
        task: what the agent was asked; its text marks the main conversation.
        decide: asks the adapter and the plugins; it sees every turn with its structural label.
        options: the policy.
    """
    proposals = propose(calls, task)
    proposed = Trajectory(tuple(_proposed(call, proposals) for call in calls), tools)
    decided = proposed.turns
    if decide is not None:
        decided = tuple(_ask(turn, proposed, decide) for turn in proposed)
    main = frozenset(call_id for call_id, proposal in proposals.items() if proposal.main)
    return evolve(proposed, turns=apply_policy(decided, main, options))


def _proposed(call: ModelCall, proposals: Mapping[str, Proposal]) -> Turn:
    if call.error is not None:
        return Turn(call, TurnLabel("discarded", f"no reply from the engine: {call.error}"), "capture")
    if call.problem is not None:
        return Turn(call, TurnLabel("invalid", call.problem), "capture")
    return Turn(call, proposals[call.id].label, "structure")


def _ask(turn: Turn, trajectory: Trajectory, decide: Decide) -> Turn:
    if turn.decided_by == "capture":
        return turn
    label, author = decide(turn, trajectory, turn.label)
    return evolve(turn, label=label, decided_by=author)
