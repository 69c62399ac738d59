"""`longrein run` with real agents, real sandboxes and real processes against a scripted policy."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import MakeConfig

from longrein import api
from longrein.capture.preflight import check_endpoint
from longrein.errors import CaptureError, RunStopped
from longrein.model import PublicTask, Rollout, Verdict
from longrein.plugins import PluginHost
from longrein.rollout.record import config_toml, read_rollouts, read_tasks
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.testing.solver import solver

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(240)]
PROGRAM = "print(2 * int(input()))\n"


def run_program(config: MakeConfig, host: PluginHost, script: object, code: str, *sets: str) -> Rollout:
    """Run one session of the `program` agent and return its rollout, also when none could be scored."""
    with ScriptedServer(script) as server:  # type: ignore[arg-type]
        loaded = config({"program": {"code": code}}, server.endpoint.url, "taskset.limit=1", *sets)
        try:
            return api.run(loaded, host=host).rollouts[0]
        except RunStopped:
            assert loaded.run.out
            return next(read_rollouts(loaded.run.out))


def _changed(rollout: Rollout, given: PublicTask) -> set[str]:
    """Return the files that a session made or changed, against what the run folder says it began with."""
    start = {path: text.encode() for path, text in given.files.items()}
    return {path for path, content in rollout.session.workspace.items() if content != start.get(path)}


def test_both_real_agents_nop_and_oracle_in_one_run(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    with ScriptedServer(solver(lambda _: PROGRAM)) as server:
        config = toy_config({"opencode": {}, "aider": {}, "nop": {}, "oracle": {}}, server.endpoint.url, "limits.sessions=2")
        result = api.run(config, host=toy_host)
    assert len(result.rollouts) == 8
    by_agent = {rollout.agent: rollout for rollout in result.rollouts}
    for name, status, value in (("opencode", "passed", 1.0), ("aider", "passed", 1.0), ("oracle", "passed", 1.0), ("nop", "failed", 0.0)):
        rollout = by_agent[name]
        assert (rollout.outcome.kind, rollout.verdict.status, rollout.reward.value) == ("completed", status, value), rollout
    assert [turn.label.label for turn in by_agent["opencode"].trajectory] == ["train"] * 3
    assert [action.kind for action in by_agent["opencode"].actions] == ["edit", "run"]
    assert [turn.label.label for turn in by_agent["aider"].trajectory] == ["train"]
    assert by_agent["aider"].session.workspace["solution.py"].decode() == PROGRAM
    assert sorted(r.id for r in read_rollouts(result.folder)) == sorted(r.id for r in result.rollouts)
    given = read_tasks(result.folder)
    assert {(r.taskset, r.task_id, r.task_digest) for r in result.rollouts} == set(given)
    changed = {agent: _changed(r, given[r.taskset, r.task_id, r.task_digest]) for agent, r in by_agent.items()}
    assert (changed["nop"], changed["oracle"]) == (set(), {"solution.py"})
    summary = json.loads((result.folder / "summary.json").read_text())
    assert summary["agents"]["oracle"]["run"]["pass_rate"] == 1.0
    assert summary["agents"]["nop"]["run"]["pass_rate"] == 0.0
    assert "hidden-canary" not in "".join(p.read_text() for p in result.folder.glob("*.json*"))


def failing(message: str) -> Callable[[dict[str, Any]], Reply]:
    """Answer the engine's own check, and fail every request of an agent."""
    return lambda request: Reply(message, status=500) if request["messages"][-1]["content"] == "go" else Reply("fine")


CASES = [
    ("exits 0", "sys.exit(0)", (), "no_model_calls", None),
    ("exits 3", "sys.exit(3)", (), "agent_error", None),
    ("sleeps", "time.sleep(600)", ("limits.idle_s=2",), "stalled", None),
    ("asks once and solves", "open('solution.py','w').write(ask('go'))", (), "completed", 1.0),
    ("asks and exits 3", "ask('go'); sys.exit(3)", (), "agent_error", 0.0),
    ("asks and sleeps", "ask('go'); time.sleep(600)", ("limits.idle_s=2",), "stalled", 0.0),
    ("runs for ever", "while 1: ask('go'); time.sleep(0.3)", ("limits.timeout_s=4", "limits.max_calls=1000"), "timeout", 0.0),
    ("loops", "while 1: ask('go')", ("limits.max_calls=5",), "budget_exceeded", 0.0),
]


@pytest.mark.parametrize(("code", "sets", "kind", "reward"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_outcomes(code: str, sets: tuple[str, ...], kind: str, reward: float | None, toy_config: MakeConfig, toy_host: PluginHost) -> None:
    rollout = run_program(toy_config, toy_host, lambda _: Reply(PROGRAM), code, *sets)
    assert (rollout.outcome.kind, rollout.reward.value) == (kind, reward), rollout.outcome
    if kind == "budget_exceeded":
        assert sum(bool(turn.call.sampled_ids) for turn in rollout.trajectory) == 5


def test_an_agent_that_hides_engine_failures_is_unscorable(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    code = "\nfor _ in range(2):\n    try: ask('go')\n    except urllib.error.HTTPError: pass\n"
    rollout = run_program(toy_config, toy_host, failing("out of memory"), code)
    assert (rollout.outcome.kind, rollout.verdict.status, rollout.reward.value) == ("llm_error", "unscorable", None)


def test_a_run_in_which_every_session_fails_stops_with_the_first_reason(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    with ScriptedServer(failing("boom")) as server:
        config = toy_config({"program": {"code": "ask('go')"}}, server.endpoint.url)
        with pytest.raises(RunStopped, match=r"first 4 rollouts could not be scored.*llm_error.*boom"):
            api.run(config, samples=20, host=toy_host)
    assert config.run.out
    assert 4 <= len(list(read_rollouts(config.run.out))) <= 10


def test_other_keys_and_control_routes_are_refused(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    code = """
got = []
mine = os.environ["KEY"]
for key, path in (("wrong", "/v1/chat/completions"), (mine, "/sessions"), (mine, "/docs"), (mine, "/health")):
    try: ask("go", path, key); got.append(200)
    except urllib.error.HTTPError as error: got.append(error.code)
print(got); ask("go")
"""
    rollout = run_program(toy_config, toy_host, lambda _: Reply("ok"), code)
    assert rollout.session.stdout, rollout.session.stderr
    codes = json.loads(rollout.session.stdout.strip().splitlines()[-1])
    assert codes[0] == 401
    assert set(codes[1:]) <= {401, 404, 405}
    assert len(rollout.trajectory) == 1


def test_an_endpoint_without_token_ids_is_for_evaluation_only(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    rollout = run_program(toy_config, toy_host, lambda _: Reply(PROGRAM, fault="no_ids"), "open('solution.py','w').write(ask('go'))")
    assert rollout.verdict.status == "passed"
    with ScriptedServer(lambda _: Reply("x", fault="no_ids")) as server, pytest.raises(CaptureError, match=r"token.ids"):
        asyncio.run(check_endpoint(server.endpoint, training=True))


def test_interrupt_leaves_a_readable_folder_and_no_process(toy_config: MakeConfig, tmp_path: Path) -> None:
    asked, hold = threading.Event(), threading.Event()

    def script(request: dict[str, object]) -> Reply:
        if sum(body["messages"][-1]["content"] == "go" for body in server.requests) > 1:
            asked.set()
            return Reply("late", hold=hold)
        return Reply(PROGRAM)

    with ScriptedServer(script) as server:
        code = "open('solution.py','w').write(ask('go'))"
        config = toy_config({"program": {"code": code}}, server.endpoint.url, "limits.sessions=1")
        (tmp_path / "c.toml").write_text(config_toml(config))
        # A job in the background ignores SIGINT, and so would its children: `env` gives them the default back.
        command = ["env", "--default-signal=INT", sys.executable, "-m", "longrein", "run", str(tmp_path / "c.toml"), "--samples", "3"]
        child = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
        assert asked.wait(60)
        os.kill(child.pid, signal.SIGINT)
        _, stderr = child.communicate(timeout=30)
    assert child.returncode == 130, stderr
    assert b"interrupted" in stderr
    assert config.run.out
    assert [rollout.verdict.status for rollout in read_rollouts(config.run.out)] == ["passed"]
    assert (config.run.out / "summary.json").is_file()


def test_sampling_goes_on_while_grades_are_awaited_and_stops_at_four_a_core(
    toy_config: MakeConfig, toy_host: PluginHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    begun: list[str] = []
    may_grade = threading.Event()
    seen: list[int] = []
    host_verifier = toy_host.get("verifier", "doubling")

    def grade(self: object, hidden: object, workspace: Path) -> Verdict:
        if not may_grade.is_set():
            seen.append(len(begun))
            if len(seen) == 4:
                may_grade.set()
        assert may_grade.wait(60)
        return Verdict("passed", 1.0)

    monkeypatch.setattr(host_verifier, "grade", grade)
    result = api.run(
        toy_config({"nop": {}}, None, "limits.sessions=1"), samples=4, host=toy_host, started=lambda spec: begun.append(spec.id)
    )
    assert len(result.rollouts) == 8
    assert seen[-1] == 4, "the fourth waits for its grade, and no fifth began"
