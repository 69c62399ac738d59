"""What the tests of the adapters share: a session to plan for, and one real session behind capture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from attrs import frozen

from longrein import api
from longrein.agent import AgentAdapter, Session
from longrein.config import from_mapping
from longrein.model import ModelCall, PublicTask, Rollout, Row, Trajectory, Turn, TurnLabel
from longrein.plugins import PluginHost
from longrein.testing.scripted import Script, ScriptedServer
from longrein.turns import build_rows

PROMPT = 'Write  solution.py: "say" 5 1e3 -v -- --title "x y" \'q\' @solution.py /help {{task}}\n- it prints 42 `ok` $HOME, "end"'


@frozen
class Played:
    """A session that a real agent made of a script."""

    prompt: str
    rollout: Rollout
    rows: tuple[Row, ...]
    requests: list[dict[str, Any]]
    """What reached the policy, the endpoint's check left out."""


@pytest.fixture
def plan_session() -> Session:
    """Return a session to plan for."""
    return Session(
        task=PublicTask(PROMPT),
        model="m",
        base_url="http://127.0.0.1:1",
        api_key="key-1",
        workdir=PurePosixPath("/work"),
        home=PurePosixPath("/home/agent"),
        python=PurePosixPath("/p"),
        max_model_len=30_000,
    )


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., Played]:
    """Run one session of an agent on a task that wants 42 printed."""

    def played(agent: str, script: Script, **limits: Any) -> Played:
        task = tmp_path / "task"
        (task / "hidden").mkdir(parents=True)
        (task / "prompt.md").write_text(PROMPT)
        (task / "verify.sh").write_text('test "$(python3 solution.py)" = 42')
        with ScriptedServer(script) as server:
            made = from_mapping(
                {
                    "taskset": f"{task}/",
                    "agents": {agent: {}},
                    "run": {"out": str(tmp_path / "run")},
                    "policy": {"url": server.endpoint.url, "model": "scripted"},
                    "limits": {"max_reply_tokens": 9000, **limits},
                }
            )
            [rollout] = api.run(made, host=PluginHost.load()).rollouts
        rows = build_rows(rollout.trajectory, rollout_id="r", agent=agent, token_budget=None).rows
        return Played(PROMPT, rollout, rows, server.requests[1:])

    return played


@pytest.fixture
def label_of() -> Callable[..., str | None]:
    """Return what an adapter says of a call that was asked with (role, text) messages, or None."""

    def label(adapter: AgentAdapter, *messages: tuple[str, str]) -> str | None:
        asked = tuple({"role": role, "content": text} for role, text in messages)
        turn = Turn(ModelCall("c", 0, None, (), 0, (), (), messages=asked), TurnLabel("train", "structure"), "structure")
        found = adapter.classify(turn, Trajectory((turn,)))
        return found.label if found else None

    return label
