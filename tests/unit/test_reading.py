"""What adapters share in reading a session: side calls, tool calls, and what a shell command does."""

from __future__ import annotations

from typing import Any

import pytest

from longrein.model import Action, ModelCall, Outcome, SessionResult, Trajectory, Turn, TurnLabel
from longrein.reading import aside, shell_kind, tool_actions


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("echo 'print(42)' > solution.py", "edit"),
        ("mkdir -p a && cat > a/b.py <<'END'\nprint(1)\nEND", "edit"),
        ("cat >>notes.txt <<EOF\nx\nEOF", "edit"),
        ("sed -i 's/a/b/' x.py", "edit"),
        ("sed -E -i 's/a/b/' x.py", "edit"),
        ("apply_patch <<'EOF'\n*** Begin Patch", "edit"),
        ("python3 solution.py", "run"),
        ("python3 solution.py 2>&1 >/dev/null", "run"),
        ("cat in.txt | python3 solution.py", "run"),
        ("cd src && pytest -q", "run"),
        ("python3 - <<'EOF'\nprint(1)\nEOF", "run"),
        ("cat solution.py", "read"),
        ("cd /work; ls -la | head", "read"),
        ("sed -n '1,5p' x.py", "read"),
        ("grep -rn foo . 2>/dev/null", "search"),
        ("rg --files | head -3", "search"),
        ("pwd", "run"),
        ("", "run"),
    ],
)
def test_a_shell_command_is_read_by_what_it_does(command: str, kind: str) -> None:
    assert shell_kind(command) == kind


def turn(index: int, *messages: tuple[str, Any], **more: Any) -> Turn:
    asked = tuple({"role": role, "content": content} for role, content in messages)
    return Turn(ModelCall(str(index), index, None, (), 0, (), (), messages=asked, **more), TurnLabel("train", "structure"), "structure")


STARTS = {"system": {"You write titles": "a title"}, "request": {"Summarize all": "a summary"}}


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([("system", "You write titles."), ("user", "x")], "a title"),
        ([("system", [{"type": "text", "text": "Be brief.\nYou write titles."}]), ("user", "x")], "a title"),
        ([("developer", "You write titles."), ("user", "x")], "a title"),
        ([("system", "Work. You write titles."), ("user", "You write titles")], None),
        ([("system", "Work."), ("user", "x"), ("assistant", "y"), ("user", "Note.\nSummarize all of it")], "a summary"),
        ([("system", "Work."), ("user", "Summarize all the files")], None),  # the task itself
        ([("system", "Work."), ("user", "Summarize all"), ("assistant", "y"), ("tool", "z")], None),
        ([("user", "x")], None),
    ],
)
def test_side_calls_are_known_by_how_a_line_begins(messages: list[tuple[str, Any]], reason: str | None) -> None:
    made = turn(0, *messages)
    found = aside(made, Trajectory((made,)), **STARTS)
    assert found == (TurnLabel("aux", reason) if reason else None)


def test_actions_are_the_tool_calls_that_were_delivered() -> None:
    def said(index: int, name: str, arguments: str, *, delivered: bool = True) -> Turn:
        reply = {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        return turn(index, reply=reply, delivered=delivered)

    turns = (
        said(0, "sh", '{"cmd": "cat a.py"}'),
        said(1, "sh", '{"cmd": "ls"}', delivered=False),
        said(2, "find", '{"path": "src", "pattern": "x"}'),
        said(3, "sh", "not json"),
        said(4, "plan", "[1]"),
        turn(5, reply={"role": "assistant", "content": "done"}),
    )
    result = SessionResult("s", "a", Outcome("completed"), Trajectory(turns))
    assert tool_actions(result, {"sh": "shell", "find": "search"}) == [
        Action("read", "sh", "cat a.py"),
        Action("search", "find", "x"),
        Action("run", "sh"),
        Action("other", "plan"),
    ]
