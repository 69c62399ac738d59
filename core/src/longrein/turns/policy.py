"""The second step of labelling: options of the config, which can only turn train into context."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attrs import evolve

from longrein.config import TurnsConfig
from longrein.model import Turn

_BLOCK = re.compile(r"^\s*(```|~~~|<{5,9} ?SEARCH|\*\*\* Begin Patch|<(?!think)[a-zA-Z][\w:-]*[\s>/])", re.MULTILINE)
"""Starts of what a program reads out of prose: fences, SEARCH/REPLACE and patch blocks, XML elements on a line of their own."""


def apply_policy(turns: Sequence[Turn], main: frozenset[str], options: TurnsConfig) -> tuple[Turn, ...]:
    """Return the turns with `options.truncated` and `options.policy` applied.

    Args:
        turns: labelled by capture, structure, adapter and plugins.
        main: calls of the main conversation; `last_turn` trains the last of their train turns, or of all if none is.
        options: `actions_only` trains turns that act (`acts`).
    """
    if options.truncated == "context":
        turns = [_context(turn, "truncated: the reply was cut by length") if truncated(turn) else turn for turn in turns]
    if options.policy == "actions_only":
        turns = [turn if acts(turn) else _context(turn, "actions_only: the reply acts on nothing") for turn in turns]
    elif options.policy == "last_turn":
        trained = [turn for turn in turns if turn.label.label == "train"]
        last = ([turn for turn in trained if turn.call.id in main] or trained)[-1:]
        turns = [turn if turn in last else _context(turn, "last_turn: the session went on after it") for turn in turns]
    return tuple(turns)


def truncated(turn: Turn) -> bool:
    """Return whether a reply was cut by length."""
    return turn.call.finish_reason == "length"


def acts(turn: Turn) -> bool:
    """Return whether a reply acts on the workspace.

    The label's `acts` decides where an adapter or plugin set it. Otherwise a reply acts when it calls a tool, or, where the
    request offered no tools, when it holds a block that a program can read (a fenced, SEARCH/REPLACE, patch or XML block).
    """
    if turn.label.acts is not None:
        return turn.label.acts
    if turn.call.tools_key is not None or turn.call.reply.get("tool_calls"):
        return bool(turn.call.reply.get("tool_calls"))
    content = turn.call.reply.get("content")
    return isinstance(content, str) and bool(_BLOCK.search(content))


def _context(turn: Turn, reason: str) -> Turn:
    if turn.label.label != "train":
        return turn
    return evolve(turn, label=evolve(turn.label, label="context", reason=reason), decided_by="policy")
