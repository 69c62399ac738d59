"""The Qwen Code adapter: its plan, what it reads, and one real session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from longrein.agent import Session
from longrein.testing.scripted import Reply
from longrein_qwen_code.adapter import DENIED, QwenCode, QwenCodeOptions


def settings(session: Session, **options: Any) -> dict[str, Any]:
    [(path, text)] = QwenCode(QwenCodeOptions(**options)).launch(session).files.items()
    assert path == "/home/agent/.qwen/settings.json"
    return json.loads(text)


def test_the_settings_decide_every_permission(plan_session: Session) -> None:
    plan, made = QwenCode().launch(plan_session), settings(plan_session)
    assert "--yolo" in plan.argv
    assert plan.argv[-1] == f"--prompt={plan_session.task.prompt}"
    assert made["permissions"] == {"deny": list(DENIED)}
    assert {"web_fetch", "ask_user_question"} <= set(DENIED)
    assert (made["privacy"], made["telemetry"]) == ({"usageStatisticsEnabled": False}, {"enabled": False})
    assert not made["general"]["enableAutoUpdate"]
    assert plan.env["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"
    assert {name for name, value in plan.env.items() if "key-1" in value} == {"OPENAI_API_KEY"}
    assert "key-1" not in str(plan.argv) + str(plan.files)


def test_the_window_is_the_policys_or_the_options(plan_session: Session) -> None:
    assert settings(plan_session)["model"]["generationConfig"]["contextWindowSize"] == 30_000
    assert settings(plan_session, context=9_000)["model"]["generationConfig"]["contextWindowSize"] == 9_000


@pytest.mark.parametrize(
    ("system", "label"),
    [
        ("You are the component that summarizes internal chat history into a given structure.", "aux"),
        ("Generate a concise, sentence-case title (3-7 words)", "aux"),
        ("You are Qwen Code, an interactive CLI agent", None),
    ],
)
def test_side_calls_are_known_by_their_system_prompt(system: str, label: str | None, label_of: Callable[..., str | None]) -> None:
    assert label_of(QwenCode(), ("system", system), ("user", "x")) == label


def script(request: dict[str, Any]) -> Reply:
    shell = {"is_background": False}
    steps = [
        Reply("I write it.", [("write_file", {"file_path": "/work/solution.py", "content": "print(42)\n"})], reasoning="One line will do."),
        Reply("", [("run_shell_command", {"command": "python3 solution.py", **shell}), ("list_directory", {"path": "/work"})]),
        Reply("Done."),
    ]
    # Its history begins with an answer of its own making.
    return steps[sum(message["role"] == "assistant" for message in request["messages"]) - 1]


def test_a_real_session_is_one_row(play: Callable[..., Any]) -> None:
    played = play("qwen-code", script)
    rollout = played.rollout
    assert (rollout.outcome.kind, rollout.verdict.status) == ("completed", "passed"), rollout.session.stdout
    assert [action.kind for action in rollout.actions] == ["edit", "run", "read"]
    assert [turn.label.label for turn in rollout.trajectory] == ["train"] * 3
    assert [row.call_ids for row in played.rows] == [("c0", "c1", "c2")]
    first, _, last = played.requests
    assert first["messages"][-1]["content"] == [{"type": "text", "text": played.prompt}]
    assert "Output: 42" in str(last["messages"][-2]["content"])
    names = {tool["function"]["name"] for tool in first["tools"]}
    assert names == {"agent", "edit", "glob", "grep_search", "list_directory", "read_file", "run_shell_command", "todo_write", "write_file"}
