"""The built-in agent `react`: its loop, its tools, and what stays a result for the model whatever goes wrong."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from longrein import api
from longrein.agent import Session
from longrein.config import from_mapping
from longrein.errors import RunStopped
from longrein.model import PublicTask, Rollout
from longrein.plugins import PluginHost
from longrein.practice.record import record
from longrein.react.adapter import React, ReactOptions
from longrein.rollout.record import read_rollouts
from longrein.testing.scripted import Reply, Script, ScriptedServer
from longrein.testing.solver import solver

pytestmark = pytest.mark.timeout(240)


def run(folder: Path, script: Script, **options: Any) -> Rollout:
    """Run one session on the first practice task."""
    with ScriptedServer(script) as server:
        config = from_mapping(
            {
                "taskset": {"name": "practice", "limit": 1},
                "agents": {"react": options},
                "policy": {"url": server.endpoint.url, "model": "scripted"},
                "run": {"out": str(folder)},
            }
        )
        with contextlib.suppress(RunStopped):
            api.run(config)
    (rollout,) = read_rollouts(folder, workspaces=True)
    return rollout


def results(request: dict[str, Any]) -> list[str]:
    """Return the tool results of a request."""
    return [message["content"] for message in request["messages"] if message["role"] == "tool"]


def test_it_writes_runs_and_stops_in_one_conversation(tmp_path: Path) -> None:
    rollout = run(tmp_path / "run", solver(lambda _: "print(int(input()) + 1)\n"))
    assert rollout.outcome.kind == "completed"
    assert rollout.session.workspace["solution.py"] == b"print(int(input()) + 1)\n"
    assert not any(name.startswith("react") for name in rollout.session.workspace), "the loop stands outside the workspace"
    assert [(action.kind, action.detail) for action in rollout.actions] == [
        ("edit", "solution.py"),
        ("run", "python3 -m py_compile solution.py"),
    ]
    assert [turn.label.label for turn in rollout.trajectory] == ["train"] * 3
    assert [turn.call.parent_id for turn in rollout.trajectory] == [None, "c0", "c1"], "the history only grows"
    assert rollout.session.findings == ()


CALLS: list[tuple[str, Any]] = [
    ("write", {"filePath": "a/b.txt", "content": "kept"}),
    ("read", {"filePath": "a/b.txt"}),
    ("read", {"filePath": "absent"}),
    ("teleport", {}),
    ("bash", {"cmd": "ls"}),
    ("bash", {"command": "echo out; echo err >&2; exit 3"}),
    ("bash", {"command": "sleep 300 & echo started", "description": "leave one behind"}),
    ("bash", {"command": "sleep 300"}),
    ("bash", {"command": "yes | head -c 200000"}),
]


def test_whatever_a_tool_call_does_its_result_goes_to_the_model(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def script(request: dict[str, Any]) -> Reply:
        asked.append(request)
        n = len(results(request))
        return Reply("", [CALLS[n]]) if n < len(CALLS) else Reply("done")

    rollout = run(tmp_path / "run", script, command_timeout_s=2.0)
    assert rollout.outcome.kind == "completed"
    found = results(asked[-1])
    assert found[:2] == ["written", "kept"]
    assert [text.split(":")[1].strip() for text in found[2:5]] == ["FileNotFoundError", "KeyError", "TypeError"]
    assert found[5] == "out\nerr\n\nexit code 3"
    assert found[6] == "started\n\nexit code 0", "a process in the background does not hold the loop up"
    assert found[7].endswith("killed after 2 s")
    assert len(found[8]) < 17_000
    assert "characters left out" in found[8]
    assert found[8].endswith("exit code 0")
    assert [action.kind for action in rollout.actions] == ["edit", "read", "read", "other", *["run"] * 5]


def test_arguments_that_are_no_json_are_a_result(tmp_path: Path) -> None:
    broken = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"command": '}}
    reply = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [broken]}, "finish_reason": "tool_calls"}]}
    rollout = run(tmp_path / "run", lambda request: Reply("done") if results(request) else Reply("", extra=reply))
    last = rollout.trajectory.messages(rollout.trajectory.turns[-1].call.id)[-1]
    assert last["content"].startswith("error: JSONDecodeError")
    assert rollout.actions[0].detail == ""


def test_it_stops_at_its_turn_cap(tmp_path: Path) -> None:
    rollout = run(tmp_path / "run", lambda _: Reply("", [("bash", {"command": "true"})]), max_turns=3)
    assert (rollout.outcome.kind, len(rollout.trajectory)) == ("completed", 3)
    assert "stopped after 3 turns" in rollout.session.stderr


def test_an_engine_that_fails_is_told_and_unscorable(tmp_path: Path) -> None:
    rollout = run(tmp_path / "run", lambda request: Reply("boom", status=500) if request.get("tools") else Reply("fine"))
    assert (rollout.outcome.kind, rollout.verdict.status) == ("llm_error", "unscorable")
    assert "status 5" in rollout.session.stderr


def test_the_smaller_turn_cap_holds_and_the_plan_is_pure() -> None:
    place = {"workdir": PurePosixPath("/work"), "home": PurePosixPath("/home/agent"), "python": PurePosixPath("/p")}
    session = Session(PublicTask("Do it."), "m", "http://h", "key", **place, max_turns=5)
    agent = React(ReactOptions(max_turns=9))
    assert agent.launch(session) == agent.launch(session)
    assert agent.launch(session).env["MAX_TURNS"] == "5"
    assert React(ReactOptions(max_turns=4)).launch(session).env["MAX_TURNS"] == "4"


def test_the_practice_policy_can_be_cloned_for_it() -> None:
    (recording,) = record({"react": {}}, PluginHost.load(), log=lambda line: None)
    assert [len(session) for session in recording.sessions] == [3, 3]
    assert json.dumps(recording.passing[0].tools) == json.dumps(recording.failing[-1].tools)
