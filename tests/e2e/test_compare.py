"""`longrein compare` with real processes: scripted engines for what must be equal, the practice policy for what must be real."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.e2e.conftest import TOY, MakeConfig

from longrein import api
from longrein.comparison import Comparison, read_comparison
from longrein.config import Config, from_mapping
from longrein.errors import RunStopped
from longrein.model import Rollout
from longrein.plugins import PluginHost
from longrein.rollout.record import config_toml, read_rollouts
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.testing.solver import solver

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(900)]
ASK = "open('solution.py','w').write(ask('go'))"
LONGREIN = [sys.executable, "-m", "longrein"]


def longrein(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command line and check its exit code."""
    done = subprocess.run([*LONGREIN, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def kill_when(line: str, *arguments: str | Path, also: threading.Event | None = None) -> None:
    """Start the command line and send SIGKILL when a line of its progress begins so, and an event is set."""
    with subprocess.Popen([*LONGREIN, *map(str, arguments)], stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr
            assert any(shown.startswith(line) for shown in child.stderr)
            if also:
                also.wait()
        finally:
            child.kill()


def by_seed(request: dict[str, Any]) -> Reply:
    """Write a program that is right for every second seed and names its seed."""
    seed = request.get("seed", 0)
    program = f"print({2 + seed % 2} * int(input()))  # {seed}\n"
    return solver(lambda _: program)(request) if request.get("tools") else Reply(program)


def content(rollout: Rollout) -> tuple[object, ...]:
    """Return everything of a rollout that does not depend on time."""
    turns = [(turn.label.label, tuple(turn.call.sampled_ids), turn.call.parent_id) for turn in rollout.trajectory]
    return rollout.id, rollout.seed, rollout.outcome, rollout.verdict.status, rollout.reward.value, turns, rollout.actions


def timeless(comparison: Comparison) -> Comparison:
    return evolve(comparison, figures=tuple(evolve(figures, wall_s=None) for figures in comparison.figures))


def test_a_killed_and_resumed_comparison_equals_one_that_was_not(toy_config: MakeConfig, toy_host: PluginHost, tmp_path: Path) -> None:
    hold, asked = threading.Event(), threading.Event()
    hold.set()

    def script(request: dict[str, Any]) -> Reply:
        if not hold.is_set() and len(server.requests) > n_before + 5:
            asked.set()
            return evolve(by_seed(request), hold=hold)
        return by_seed(request)

    agents = {"react": {}, "program": {"code": ASK}, "nop": {}}
    with ScriptedServer(script) as server:
        whole = toy_config(agents, server.endpoint.url, "compare.samples=2", "limits.sessions=2", f"run.out='{tmp_path / 'whole'}'")
        expected = api.compare(whole, host=toy_host)
        hold.clear()
        n_before = len(server.requests)
        folder = tmp_path / "killed"
        killed = evolve(whole, limits=evolve(whole.limits, sessions=3), run=evolve(whole.run, out=folder))
        (tmp_path / "c.toml").write_text(config_toml(killed))
        kill_when("[1/", "compare", tmp_path / "c.toml", also=asked)
        hold.set()
        first = list(read_rollouts(folder))
        assert 0 < len(first) < 12
        with (folder / "rollouts.jsonl").open("ab") as file:
            file.write((folder / "rollouts.jsonl").read_bytes()[:99])  # as if the kill had come in the middle of a line
        found = api.compare(killed, resume=folder, host=toy_host)
    made = list(read_rollouts(folder))
    assert made[: len(first)] == first, "what was made stays"
    assert sorted(map(content, made)) == sorted(map(content, read_rollouts(tmp_path / "whole")))
    assert len({rollout.id for rollout in made}) == len(made) == 12
    assert timeless(found.comparison) == timeless(expected.comparison)
    assert 0 < (found.comparison.of("program").pass_rate or 0) < 1, "seeds decide, or this test shows nothing"
    again = longrein("compare", "--resume", folder)
    assert "12 of 12 rollouts are made already" in again.stderr
    refused = longrein("compare", "--resume", folder, "--samples", "4", "--set", "run.seed=5", code=2)
    assert "run.seed was 0 and is 5; compare.samples was 2 and is 4" in refused.stderr
    assert "choose another --out, or --resume" in longrein("compare", tmp_path / "c.toml", code=2).stderr


def test_an_endpoint_without_token_ids_is_compared_and_named_evaluation_only(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    lines: list[str] = []
    with ScriptedServer(lambda _: Reply("print(2 * int(input()))", fault="no_ids")) as server:
        config = toy_config({"program": {"code": ASK}, "nop": {}}, server.endpoint.url, "compare.samples=1")
        result = api.compare(config, host=toy_host, log=lines.append)
    assert any("evaluation only" in line for line in lines)
    assert result.comparison.token_ids is False
    figures = result.comparison.of("program")
    assert (figures.pass_rate, figures.calls, figures.aux_share) == (1.0, 1.0, 0.0)
    assert figures.tokens_out == len("print(2 * int(input()))") + 1


def test_a_comparison_without_a_score_stops_and_its_folder_says_why(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    fails = {"program": {"code": "sys.exit(3)"}}
    with ScriptedServer(lambda _: Reply("fine")) as server:
        config = toy_config(fails, server.endpoint.url, "compare.samples=1")
        with pytest.raises(RunStopped, match=r"no rollout could be scored; the first was run.program.double-.*agent_error.*exit code 3"):
            api.compare(config, host=toy_host)
    assert config.run.out
    figures = read_comparison(config.run.out).of("program")
    assert (figures.scored, figures.unscorable, figures.pass_rate) == (0, 2, None)
    assert figures.unscorable_outcomes == {"agent_error": 2}


def test_unknown_agents_are_refused_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = longrein("compare", "--agents", "nop,orcale", "--taskset", "practice", code=2)
    assert "unknown agent 'orcale'" in done.stderr
    assert "did you mean 'oracle'?" in done.stderr
    assert not list(tmp_path.iterdir())


def test_a_terminal_gets_a_live_view_and_results_stay_on_stdout(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [
        *LONGREIN,
        "compare",
        "--agents",
        "nop",
        "--taskset",
        "practice",
        "--limit",
        "1",
        "--samples",
        "1",
        "--out",
        str(tmp_path / "run"),
    ]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm", "COLUMNS": "120"})
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:  # how a terminal says that nobody is at its other end
        pass
    os.close(ours)
    stdout, _ = child.communicate()
    assert child.returncode == 0, seen
    text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", seen).decode()
    assert "rollouts, 0:0" in text
    assert "run.nop." in text
    assert "[1/1]" not in text, "no line for each rollout"
    assert stdout.decode().startswith("agent")
    assert b"\x1b" not in stdout


def trained_on(folder: Path, policy: Path) -> Config:
    """Make a run folder whose trained model is the policy that it started from."""
    code = "print(os.environ['MODEL']); ask('go')"
    values: dict[str, Any] = {
        "taskset": "practice",
        "agents": {"program": {"code": code}},
        "plugins": {"use": [str(TOY)]},
        "policy": {"model": str(policy)},
        "limits": {"max_reply_tokens": 16},
        "eval": {"taskset": {"name": "doubling"}, "samples": 1},
    }
    config = from_mapping(values)
    folder.mkdir()
    (folder / "config.toml").write_text(config_toml(config))
    (folder / "rollouts.jsonl").touch()
    (folder / "model").symlink_to(policy)
    return config


def test_checkpoints_are_compared_under_each_agent_with_the_same_name_and_seeds(practice_policy: Path, tmp_path: Path) -> None:
    run, out = tmp_path / "trained", tmp_path / "out"
    trained_on(run, practice_policy)
    done = longrein("compare", "--checkpoint", f"{run}@0", "--checkpoint", run, "--agents", "program,nop", "--out", out)
    comparison = read_comparison(out)
    assert [(policy.name, policy.trained_with) for policy in comparison.policies] == [("trained@0", ()), ("trained", ("program",))]
    before, after = ({r.task_id: r for r in read_rollouts(out) if (r.policy, r.agent) == (p, "program")} for p in ("trained@0", "trained"))
    assert sorted(before) == sorted(after) == ["double-0", "double-1"]
    for name in before:  # the weights are the same here, so what training "did" must be nothing
        assert before[name].session.stdout == after[name].session.stdout == "practice\n"
        assert content(before[name])[1:] == content(after[name])[1:]
        assert before[name].trajectory.turns[0].call.sampled_ids
    (pair,) = [pair for pair in comparison.pairs if pair.between == "policies" and pair.agent == "program"]
    assert (pair.first, pair.second, pair.difference, pair.tasks) == ("trained@0", "trained", 0.0, 2)
    assert re.search(r"trained +program +0\.0 % \* +0\.0 %", done.stdout), done.stdout
    assert re.search(r"trained@0 +none +0\.0 % +0\.0 %", done.stdout), done.stdout


AGENTS = ("opencode", "aider", "react", "nop", "oracle")


def compare_real(policy: Path, folder: Path, *flags: str) -> None:
    """Compare all five agents with the practice policy, killed once on the way, and check the folder and the table."""
    command = ["compare", "--agents", ",".join(AGENTS), "--taskset", "practice", "--policy", str(policy), "--out", str(folder), *flags]
    patience = ("limits.idle_s=900", "limits.timeout_s=1200")  # Aider needed more than two minutes to start on a machine with other work
    sets = ("taskset.options.split='eval'", "limits.max_reply_tokens=256", "limits.max_calls=12", "limits.sessions=3", *patience)
    kill_when("[4/", *command, *(part for item in sets for part in ("--set", item)))
    first = [rollout.id for rollout in read_rollouts(folder)]
    assert len(first) >= 4
    resumed = json.loads(longrein("compare", "--resume", folder, "--json").stdout)["comparison"]
    assert {"schema_version": 1, **resumed} == json.loads((folder / "comparison.json").read_text())
    rollouts = list(read_rollouts(folder))
    assert [rollout.id for rollout in rollouts[: len(first)]] == first
    n_tasks, samples = len({r.task_id for r in rollouts}), len({r.sample for r in rollouts})
    assert len({r.id for r in rollouts}) == len(rollouts) == len(AGENTS) * n_tasks * samples
    figures = {item["agent"]: item for item in resumed["figures"]}
    assert list(figures) == list(AGENTS)
    assert (figures["nop"]["pass_rate"], figures["oracle"]["pass_rate"]) == (0.0, 1.0)
    assert all(item["unscorable"] == 0 for item in figures.values()), resumed["notes"]
    assert all(figures[agent]["calls"] >= 1 and figures[agent]["tokens_out"] > 0 for agent in AGENTS[:3])
    table = longrein("compare", "--resume", folder).stdout
    for agent, item in figures.items():
        low, high = (100 * bound for bound in item["interval"])
        assert re.search(rf"^{agent} +{100 * item['pass_rate']:.1f} % +\[{low:.1f}, {high:.1f}\]", table, re.M), table
        assert re.search(
            rf"^{agent} +{item['calls']:.1f} +{item['tokens_in']:.0f} +{item['tokens_out']:.0f} +{item['wall_s']:.1f} ", table, re.M
        ), table
    for pair in resumed["pairs"]:
        words = {"higher": f"{pair['second']} passes more", "lower": f"{pair['first']} passes more"}.get(
            pair["conclusion"], pair["conclusion"]
        )
        shown = rf"^{pair['second']} - {pair['first']} +{re.escape(format(100 * pair['difference'], '+.1f'))} .* {pair['tasks']} +{words}"
        assert re.search(shown, table, re.M), table


def test_five_agents_with_the_practice_policy_killed_and_resumed(practice_policy: Path, tmp_path: Path) -> None:
    compare_real(practice_policy, tmp_path / "run", "--limit", "2", "--samples", "1")


@pytest.mark.more
@pytest.mark.timeout(1800)
def test_five_agents_on_enough_tasks_to_tell_them_apart(practice_policy: Path, tmp_path: Path) -> None:
    compare_real(practice_policy, tmp_path / "run", "--limit", "8", "--samples", "4")
    comparison = read_comparison(tmp_path / "run")
    words = {(pair.first, pair.second): pair.conclusion for pair in comparison.pairs}
    assert words["nop", "oracle"] == "higher"
    for agent in AGENTS[:3]:  # the policy picks one of three candidates: better than nothing, worse than the solution
        assert words[agent, "nop"] == "lower"
        assert words[agent, "oracle"] == "higher"
