"""Labels, figures and the stop for invalid captures in real runs: a scripted policy, an agent's process, the run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import TOY

from longrein import api
from longrein.cli.inspect import turns
from longrein.config import Config, from_mapping
from longrein.errors import RunStopped
from longrein.model import Rollout
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.record import RunRecorder, read_rollouts
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.tasks import load_tasks
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.training.figures import of_rollout
from longrein.turns import audit, build_rows

SOLVE = "open('solution.py', 'w').write(ask('solve'))"
CAUSE = "N sampled ids returned, N reported as usage.completion_tokens"


def config(url: str, out: Path, code: str, **more: Any) -> Config:
    return from_mapping(
        {
            "taskset": {"name": "doubling", "limit": 1},
            "agents": {"program": {"code": code}},
            "plugins": {"use": [str(TOY)]},
            "policy": {"url": url, "model": "scripted"},
            "run": {"out": str(out)},
            "limits": {"max_calls": 100},
            **more,
        }
    )


@pytest.fixture
def host() -> PluginHost:
    return PluginHost.load((str(TOY),))


def loses_ids(request: dict[str, Any]) -> Reply:
    """Return fewer ids than reported whenever the agent says go."""
    return Reply("print(2 * int(input()))\n", fault="fewer_ids" if request["messages"][-1]["content"] == "go" else None)


def figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    capsys.readouterr()
    turns(folder, examples=1, as_json=True)
    [agent] = json.loads(capsys.readouterr().out)["agents"]
    return agent


def test_a_run_goes_on_with_20_invalid_turns(tmp_path: Path, host: PluginHost, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(loses_ids) as server:
        made = config(server.endpoint.url, tmp_path / "run", f"for _ in range(20): ask('go')\n{SOLVE}")
        [rollout] = api.run(made, host=host).rollouts
    assert rollout.verdict.status == "passed"
    agent = figures(tmp_path / "run", capsys)
    assert (agent["turns"], agent["unlabelled"]) == (21, 0)
    invalid, train = (next(row for row in agent["rows"] if row["label"] == label) for label in ("invalid", "train"))
    assert (invalid["turns"], invalid["decided_by"], invalid["reason"]) == (20, "capture", CAUSE)
    assert (train["turns"], train["decided_by"]) == (1, "structure")
    assert (invalid["examples"][0]["asked"], train["examples"][0]["replied"]) == ("go", "print(2 * int(input()))")
    turns(tmp_path / "run", examples=1)
    assert CAUSE in capsys.readouterr().out


def test_a_run_stops_at_the_21st_invalid_turn_with_the_reason(tmp_path: Path, host: PluginHost, capsys: pytest.CaptureFixture[str]) -> None:
    with ScriptedServer(loses_ids) as server:
        made = config(server.endpoint.url, tmp_path / "run", f"for _ in range(21): ask('go')\n{SOLVE}")
        with pytest.raises(RunStopped, match=rf"21 of the last 22 turns are invalid .*21 times because: {CAUSE}"):
            api.run(made, host=host)
    assert [row["turns"] for row in figures(tmp_path / "run", capsys)["rows"] if row["label"] == "invalid"] == [21]


DRIFTS = """
said = {"role": "user", "content": "Read an integer n and print 2*n (variant 0). Write the program to solution.py."}
ask("", messages=[said])
more = [said, {"role": "assistant", "content": "I write it."}, {"role": "user", "content": "Go on. " + "x" * 500}]
ask("", messages=more)
"""


async def training_rollout(made: Config, host: PluginHost, server: ScriptedServer) -> Rollout:
    """Make one rollout of a training group and record it."""
    [task] = load_tasks(made.taskset, host)
    recorder = RunRecorder(Path(str(made.run.out)))
    async with Engine(made, host, endpoint=server.endpoint, recorder=recorder, training=True) as engine:
        return await engine.rollout(RolloutSpec.of(task, "program", 0, run_seed=0, phase="train", group_id="g0"))


async def test_the_record_the_audit_and_the_trainer_have_the_same_figures(tmp_path: Path, host: PluginHost) -> None:
    with ScriptedServer(lambda _: Reply("<think>Twice n.</think>I write it.")) as server:
        made = config(server.endpoint.url, tmp_path / "run", DRIFTS, train={"token_budget": 400})
        rollout = await training_rollout(made, host, server)
    found = build_rows(rollout.trajectory, rollout_id=rollout.id, agent="program", token_budget=400)
    assert [row.call_ids for row in found.rows] == [("c0",)]
    [recorded] = read_rollouts(tmp_path / "run")
    recorded_labels, row_labels = ([(t.call.id, t.label, t.decided_by) for t in each] for each in (recorded.trajectory, found.relabelled))
    assert recorded_labels == row_labels
    assert recorded.trajectory.turn("c1").label.reason.startswith("over_token_budget: ")
    shown = audit([("program", recorded.trajectory)]).agents[0].metrics()
    sent = of_rollout(rollout, found.relabelled)
    assert {f"program/{key}_total": count for key, count in shown.items()}.items() <= sent.items()
    assert (shown["turns/train"], shown["turns/discarded"], shown["transitions/drifted"]) == (1, 1, 1)
    [finding] = recorded.session.findings
    assert finding.source == "agent:program"
    assert "declares history 'append_only', but 1 of 2 calls" in finding.message
