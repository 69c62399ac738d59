"""The second step of labelling: options of the config, which can only turn train into context."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from longrein.config import TurnsConfig
from longrein.model import Turn
from longrein.turns.acts import acts


def apply_policy(turns: Sequence[Turn], main: frozenset[str], options: TurnsConfig) -> tuple[Turn, ...]:
    """Return the turns with `options.truncated` and `options.policy` applied.

    Args:
        turns: labelled by capture, structure, adapter and plugins.
        main: calls of the main conversation; `last_turn` trains the last of their train turns, or of all if none is.
        options: `actions_only` trains the turns whose label says that they act, or whose reply does where the label says nothing.
    """
    if options.truncated == "context":
        turns = [_context(turn, "truncated: the reply was cut by length") if truncated(turn) else turn for turn in turns]
    if options.policy == "actions_only":
        turns = [turn if _acts(turn) else _context(turn, "actions_only: the reply acts on nothing") for turn in turns]
    elif options.policy == "last_turn":
        trained = [turn for turn in turns if turn.label.label == "train"]
        last = ([turn for turn in trained if turn.call.id in main] or trained)[-1:]
        turns = [turn if turn in last else _context(turn, "last_turn: the session went on after it") for turn in turns]
    return tuple(turns)


def truncated(turn: Turn) -> bool:
    """Return whether a reply was cut by length."""
    return turn.call.finish_reason == "length"


def _acts(turn: Turn) -> bool:
    return acts(turn.call) if turn.label.acts is None else turn.label.acts


def _context(turn: Turn, reason: str) -> Turn:
    if turn.label.label != "train":
        return turn
    return evolve(turn, label=evolve(turn.label, label="context", reason=reason), decided_by="policy")
