"""What adapters share in reading a session; each adapter then holds only its own agent's names and prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from longrein.model import Action, ActionKind, SessionResult, Trajectory, Turn, TurnLabel
from longrein.turns import messages as msg

_DETAILS = ("command", "cmd", "filePath", "file_path", "pattern", "path")
"""Arguments that say what a tool call was about, the most telling first."""
_WRITES = re.compile(r"\bapply_patch\b|\bsed\s+(-\w+\s+)*-i|\btee\s|(?<![0-9&<>])>>?\s*(?!&|/dev/)[\w./~\"'$]")
_WORDS: Mapping[str, ActionKind] = {
    **dict.fromkeys(("cat", "head", "tail", "nl", "sed", "ls", "tree", "wc", "less", "stat", "file"), "read"),
    **dict.fromkeys(("grep", "rg", "egrep", "fgrep", "find", "fd"), "search"),
}


def aside(
    turn: Turn, trajectory: Trajectory, *, system: Mapping[str, str] | None = None, request: Mapping[str, str] | None = None
) -> TurnLabel | None:
    """Return aux for a call that an agent makes for itself, else None.

    Args:
        turn: the call.
        trajectory: all calls of its session.
        system: how a line of the system prompt of such a call begins, to the reason.
        request: the same for the last message, in calls that hold a history (so never for the task itself).
    """
    messages = trajectory.messages(turn.call.id)
    own = [text for message in messages if msg.role(message) == "system" for text in msg.blocks(message)]
    last = msg.blocks(messages[-1]) if any(msg.role(message) == "assistant" for message in messages) else []
    for texts, starts in ((own, system), (last, request)):
        lines = [line for text in texts for line in text.splitlines()]
        for start, reason in (starts or {}).items():
            if any(line.startswith(start) for line in lines):
                return TurnLabel("aux", reason)
    return None


def tool_actions(result: SessionResult, kinds: Mapping[str, ActionKind | Literal["shell"]]) -> list[Action]:
    """Return the tool calls of the replies that were delivered, in order.

    Args:
        result: the session.
        kinds: tool name to kind; "shell" looks at the command, for agents without tools for files; unknown tools are "other".
    """
    found = []
    for name, arguments in _calls(result):
        detail = str(next((arguments[key] for key in _DETAILS if arguments.get(key)), ""))
        kind = kinds.get(name, "other")
        found.append(Action(shell_kind(detail) if kind == "shell" else kind, name, detail[:200]))
    return found


def shell_kind(command: str) -> ActionKind:
    """Return what a shell command does: it writes a file, reads or searches some, else it runs something."""
    if _WRITES.search(command):
        return "edit"
    steps = (step.split() for step in re.split(r"&&|\|\|?|;|\n", command))
    words = [step[0] for step in steps if step and step[0] not in ("cd", "set", "export", "echo")]
    found: set[ActionKind] = {_WORDS.get(word, "run") for word in words}
    return next((kind for kind in ("run", "search", "read") if kind in found), "run")


def _calls(result: SessionResult) -> Iterator[tuple[str, Mapping[str, Any]]]:
    delivered = (turn.call.reply for turn in result.trajectory if turn.call.delivered)
    for name, text in (call for reply in delivered for call in msg.tool_calls(reply)):
        try:
            arguments = json.loads(text)
        except ValueError:
            arguments = {}
        yield name, arguments if isinstance(arguments, dict) else {}
