"""The mini-swe-agent adapter: its plan, what it reads, and real sessions with a format error and with a budget."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from attrs import evolve

from longrein.agent import Session
from longrein.testing.scripted import Reply
from longrein_mini_swe_agent.adapter import MiniSweAgent

SUBMIT = Reply("Done.", [("bash", {"command": "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"})])


def test_the_plan_asks_nobody_and_looks_up_nothing(plan_session: Session) -> None:
    plan = MiniSweAgent().launch(plan_session)
    assert {"--yolo", "--exit-immediately", "--cost-limit=0", "--model=openai/m", "--config=agent.step_limit=0"} <= set(plan.argv)
    assert plan.argv[-1] == f"--task={plan_session.task.prompt}"
    assert plan.env["OPENAI_API_BASE"] == "http://127.0.0.1:1/v1"
    assert plan.env["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert {name for name, value in plan.env.items() if "key-1" in value} == {"OPENAI_API_KEY"}
    assert "key-1" not in str(plan.argv)
    assert "--config=agent.step_limit=7" in MiniSweAgent().launch(evolve(plan_session, max_turns=7)).argv


def script(request: dict[str, Any]) -> Reply:
    steps = [
        Reply("I write it.", [("bash", {"command": "echo 'print(42)' > solution.py"})]),
        Reply("Both.", [("bash", {"command": "python3 solution.py"}), ("bash", {"command": "ls"})]),
        SUBMIT,
    ]
    if "Tool call error" not in str(request["messages"]):
        return Reply("I would write 42.")
    return steps[sum(message["role"] == "assistant" for message in request["messages"])]


def test_a_real_session_is_one_row_and_one_for_its_format_error(play: Callable[..., Any]) -> None:
    played = play("mini-swe-agent", script)
    rollout = played.rollout
    assert (rollout.outcome.kind, rollout.verdict.status) == ("completed", "passed"), rollout.session.stdout
    assert [action.kind for action in rollout.actions] == ["edit", "run", "read", "run"]
    assert [turn.label.label for turn in rollout.trajectory] == ["train"] * 4
    assert rollout.trajectory.turns[0].decided_by == "agent:mini-swe-agent"
    assert [row.call_ids for row in played.rows] == [("c0",), ("c1", "c2", "c3")]
    assert not rollout.session.findings
    assert played.prompt in played.requests[0]["messages"][-1]["content"]
    assert [json.loads(message["content"])["output"] for message in played.requests[-1]["messages"][-2:]] == ["42\n", "solution.py\n"]


def test_a_session_over_its_budget_of_tokens_is_ended(play: Callable[..., Any]) -> None:
    played = play("mini-swe-agent", lambda _: Reply("", [("bash", {"command": "true"})]), max_tokens=30)
    assert played.rollout.outcome.kind == "budget_exceeded"
    assert len(played.requests) <= 3
