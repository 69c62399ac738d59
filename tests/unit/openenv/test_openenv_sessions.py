"""Whole sessions in an environment: the engine, the sandbox, the built-in loop and opencode, a scripted policy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longrein import api
from longrein.config import from_mapping
from longrein.errors import RunStopped
from longrein.model import Rollout
from longrein.plugins import PluginHost
from longrein.rollout.record import read_rollouts
from longrein.testing.scripted import Reply, Script, ScriptedServer
from longrein.turns import build_rows

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]  # openenv's server code warns of its own accord
HERE = Path(__file__).parent
SPY = """
import os, pathlib, sys, subprocess, json
import longrein
from longrein.agent import AgentAdapter, Capabilities, LaunchPlan

class Spy(AgentAdapter):
    name = "spy"
    capabilities = Capabilities(calls_model=False, mcp=True)

    def launch(self, session):
        code = '''
import json, os, socket, sys
door = socket.socket(socket.AF_UNIX)
door.connect(sys.argv[1])
door.sendall(b"wrong key\\\\n" + b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\\\\n')
print("answered" if door.recv(100) else "refused", sorted(k for k, v in os.environ.items() if "http" in v or "secret" in v))
'''
        return LaunchPlan([str(session.python), "-c", code, session.mcp.argv[2]])

@longrein.hookimpl
def longrein_agents():
    return [Spy]
"""


def guesser(*numbers: int) -> Script:
    """Return a script that guesses these numbers one after the other and stops."""

    def script(request: dict[str, Any]) -> Reply:
        names = [tool["function"]["name"] for tool in request.get("tools") or ()]
        name = next((name for name in names if name.endswith("guess")), None)
        n = sum(message["role"] == "tool" for message in request["messages"])
        return Reply("", [(name, {"number": numbers[n]})]) if name and n < len(numbers) else Reply("Done.")

    return script


def run(folder: Path, agents: dict[str, Any], script: Script, *, use: tuple[str, ...] = (), **options: Any) -> dict[str, Rollout]:
    """Run one session of each agent on the task with seed 1."""
    with ScriptedServer(script) as server:
        config = from_mapping(
            {
                "taskset": {"name": "openenv", "options": {"prompt": "Guess.", "first_seed": 1, **options}},
                "agents": agents,
                "policy": {"url": server.endpoint.url, "model": "scripted"},
                "limits": {"max_reply_tokens": 9000},
                "run": {"out": str(folder / "run")},
                "plugins": {"use": list(use)},
            }
        )
        with contextlib.suppress(RunStopped):
            api.run(config, host=PluginHost.load(use, folder=folder))
    return {rollout.agent: rollout for rollout in read_rollouts(folder / "run")}


def test_the_built_in_loop_and_opencode_guess_side_by_side(guess_url: str, tmp_path: Path) -> None:
    made = run(tmp_path, {"react": {}, "opencode": {}, "nop": {}}, guesser(7, 1), url=guess_url)
    for name in ("react", "opencode"):
        rollout = made[name]
        assert (rollout.outcome.kind, rollout.verdict.status, rollout.reward.value) == ("completed", "passed", 1.0), rollout
        assert [turn.label.label for turn in rollout.trajectory] == ["train"] * 3
        messages = rollout.trajectory.messages(rollout.trajectory.turns[-1].call.id)
        assert any("Guess.\n\nNumbers 0 to 2; hint 1." in str(message["content"]) for message in messages if message["role"] == "user")
        first, second = (str(message["content"]) for message in messages if message["role"] == "tool")
        assert "below 3" in first
        assert second == "right\nThe episode is over."
        assert "secret-1" not in str(messages)
        [row] = build_rows(rollout.trajectory, rollout_id="r", agent=name, token_budget=None).rows
        assert row.n_trained == sum(len(turn.call.sampled_ids) for turn in rollout.trajectory)
    assert (made["nop"].verdict.status, made["nop"].reward.value) == ("failed", 0.0)


def test_a_trl_class_serves_the_loop(tmp_path: Path) -> None:
    made = run(tmp_path, {"react": {}}, guesser(0), environment_factory=f"{HERE / 'guess_class.py'}:GuessEnv")
    assert (made["react"].outcome.kind, made["react"].verdict.status, made["react"].reward.value) == ("completed", "failed", 0.0)


def test_a_server_that_dies_is_unscorable_with_its_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GUESS_SPOILT", "dies")
    made = run(tmp_path, {"react": {}}, guesser(1, 1, 1), server=str(HERE / "guess_server.py:app"))
    rollout = made["react"]
    assert (rollout.outcome.kind, rollout.verdict.status, rollout.reward.value) == ("environment_error", "unscorable", None)
    assert "tool 'guess': ConnectionError: the environment server closed the connection" in rollout.outcome.reason
    assert len(rollout.trajectory) < 3, "the session ends with its environment"


def test_an_unclean_reset_is_the_outcome_s_reason(guess_url: str, spoil: Callable[[str], None], tmp_path: Path) -> None:
    spoil("unclean")
    made = run(tmp_path, {"react": {}}, guesser(1), url=guess_url)
    assert made["react"].outcome.kind == "environment_error"
    assert "reset is not clean" in made["react"].outcome.reason
    assert len(made["react"].trajectory) == 0, "nothing is spent on it"


def test_the_door_takes_the_session_s_key_only_and_the_server_s_address_stays_outside(guess_url: str, tmp_path: Path) -> None:
    (tmp_path / "spy.py").write_text(SPY)
    made = run(tmp_path, {"spy": {}}, guesser(), use=("./spy.py",), url=guess_url)
    assert made["spy"].session.stdout.strip() == "refused []", made["spy"].session.stderr
