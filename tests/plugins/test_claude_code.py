"""The Claude Code adapter: its plan, what it reads, and one real session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from longrein.agent import Session
from longrein.testing.scripted import Reply
from longrein_claude_code.adapter import ClaudeCode, ClaudeCodeOptions


def test_the_plan_asks_nobody_and_reads_nothing(plan_session: Session) -> None:
    plan = ClaudeCode().launch(plan_session)
    assert {"--print", "--dangerously-skip-permissions", "--setting-sources=", "--strict-mcp-config"} <= set(plan.argv)
    assert list(plan.argv[-2:]) == ["--", plan_session.task.prompt]
    assert {name for name, value in plan.env.items() if "key-1" in value} == {"ANTHROPIC_API_KEY"}
    assert "key-1" not in str(plan.argv)
    assert plan.env["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:1"
    assert plan.env["ANTHROPIC_MODEL"] == plan.env["ANTHROPIC_SMALL_FAST_MODEL"] == "m"
    assert {name for name, value in plan.env.items() if name.startswith(("DISABLE_", "CLAUDE_CODE_DISABLE_")) and value != "1"} == set()
    assert not plan.files


def test_options(plan_session: Session) -> None:
    plan = ClaudeCode(ClaudeCodeOptions(tools="default", context=9_000)).launch(plan_session)
    assert (plan.env["CLAUDE_CODE_AUTO_COMPACT_WINDOW"], plan.env["CLAUDE_CODE_MAX_OUTPUT_TOKENS"]) == ("9000", "2250")
    assert "--tools=default" in plan.argv
    assert ClaudeCode().launch(plan_session).env["CLAUDE_CODE_AUTO_COMPACT_WINDOW"] == "30000"


@pytest.mark.parametrize(
    ("system", "label"),
    [
        ("You are a Claude agent.\nGenerate a concise, sentence-case title (3-7 words)", "aux"),
        ("You are a helpful AI assistant tasked with summarizing conversations.", "aux"),
        ("Your task is to process Bash commands that an AI coding agent wants to run.", "aux"),
        ("You are a Claude agent, built on Anthropic's Claude Agent SDK.", None),
    ],
)
def test_side_calls_are_known_by_their_system_prompt(system: str, label: str | None, label_of: Callable[..., str | None]) -> None:
    assert label_of(ClaudeCode(), ("system", system), ("user", "x")) == label


def test_a_compaction_is_aux(label_of: Callable[..., str | None]) -> None:
    history = [
        ("system", "You are a Claude agent"),
        ("user", "x"),
        ("assistant", "y"),
        ("user", "CRITICAL: Respond with TEXT ONLY. Do NOT"),
    ]
    assert label_of(ClaudeCode(), *history) == "aux"
    assert label_of(ClaudeCode(), *history[:3]) is None


def script(request: dict[str, Any]) -> Reply:
    steps = [
        Reply("I write it.", [("Write", {"file_path": "/work/solution.py", "content": "print(42)\n"})], reasoning="One line will do."),
        Reply("Both.", [("Bash", {"command": "python3 solution.py"}), ("Read", {"file_path": "/work/solution.py"})]),
        Reply("Done."),
    ]
    return steps[sum(message["role"] == "assistant" for message in request["messages"])]


def test_a_real_session_is_one_row(play: Callable[..., Any]) -> None:
    played = play("claude-code", script)
    rollout = played.rollout
    assert (rollout.outcome.kind, rollout.verdict.status) == ("completed", "passed"), rollout.session.stdout
    assert [action.kind for action in rollout.actions] == ["edit", "run", "read"]
    assert [(turn.label.label, turn.call.dialect) for turn in rollout.trajectory] == [("train", "messages")] * 3
    assert [row.call_ids for row in played.rows] == [("c0", "c1", "c2")]
    first, _, last = played.requests
    assert first["messages"][-1]["content"].endswith(played.prompt)
    assert last["messages"][-2]["content"] == "42"
    assert "chat_template_kwargs" not in first
    assert {tool["function"]["name"] for tool in first["tools"]} == {"Agent", "Bash", "Edit", "Glob", "Grep", "Read", "Write"}
