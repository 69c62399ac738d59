"""Give every model call of a session its label, reason and author."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import evolve

from longrein.config import TurnsConfig
from longrein.model import ModelCall, PublicTask, Trajectory, Turn, TurnLabel

Decide = Callable[[Turn, Trajectory, TurnLabel], tuple[TurnLabel, str]]
"""Asks the adapter and the plugins: (turn, trajectory, structural proposal) to (label, who decided)."""


def label_calls(
    calls: Sequence[ModelCall],
    tools: Mapping[str, Sequence[Mapping[str, Any]]],
    *,
    task: PublicTask,
    decide: Decide | None = None,
    options: TurnsConfig = TurnsConfig(),
) -> Trajectory:
    """Return the trajectory of a session: capture, then structure, then adapter and plugins, then policy."""
    turns = []
    for call in calls:
        if call.problem is not None:
            turns.append(Turn(call, TurnLabel("invalid", call.problem), "capture"))
        elif call.error is not None:
            turns.append(Turn(call, TurnLabel("discarded", f"no reply from the engine: {call.error}"), "capture"))
        else:
            turns.append(Turn(call, TurnLabel("train", "agent turn"), "structure"))
    trajectory = Trajectory(tuple(turns), tools)
    if decide is None:
        return trajectory
    decided = [turn if turn.decided_by == "capture" else _ask(turn, trajectory, decide) for turn in turns]
    return evolve(trajectory, turns=tuple(decided))


def _ask(turn: Turn, trajectory: Trajectory, decide: Decide) -> Turn:
    label, author = decide(turn, trajectory, turn.label)
    return evolve(turn, label=label, decided_by=author)
