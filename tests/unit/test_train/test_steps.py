"""Real AsyncGRPOTrainer steps on the CPU, against the real policy server; only the agents are fake (fake_child.py)."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import psutil
import pytest

from longrein.config import from_mapping, load
from longrein.errors import ConfigError, RunStopped
from longrein.plugins import PluginHost
from longrein.serve.process import ControlClient, ServerProcess
from longrein.training import state as states
from longrein.training import train, worker
from longrein.training.mixture import Mixture

FAKE = str(Path(__file__).with_name("fake_child.py"))
PLUGIN = """
    import longrein
    from longrein.agent import AgentAdapter, LaunchPlan
    from longrein.model import PublicTask, Task, TaskRef
    from longrein.options import NoOptions
    from longrein.verifier import TaskSet
    from attrs import frozen

    class Tick(AgentAdapter):
        name = "tick"
        def launch(self, session):
            return LaunchPlan(["true"])

    class Tock(Tick):
        name = "tock"

    @frozen
    class Numbers:
        first: int = 0
        n: int = 3

    class NumberTasks(TaskSet):
        name = "numbers"
        Options = Numbers
        def tasks(self):
            for i in range(self.options.first, self.options.first + self.options.n):
                yield Task(f"n{i}", f"digest{i}", PublicTask(f"count to {i}"), TaskRef("numbers", f"n{i}"), "deepcoder")
        def hidden(self, task_id):
            return {}

    @longrein.hookimpl
    def longrein_agents():
        return [Tick, Tock]

    @longrein.hookimpl
    def longrein_tasksets():
        return [NumberTasks]
"""


@pytest.fixture
def trains(tmp_path, model, monkeypatch):
    """Return a function that trains with the fake engine; afterwards nothing may be left of any run."""
    (tmp_path / "numbers.py").write_text(textwrap.dedent(PLUGIN))
    host = PluginHost.load(["./numbers.py"], folder=tmp_path)
    monkeypatch.setattr(worker, "CHILD", (sys.executable, FAKE))
    short = tempfile.mkdtemp(prefix="lrt", dir="/tmp")  # a socket's path must stay short
    monkeypatch.setattr(tempfile, "tempdir", short)
    servers = []
    start = ServerProcess.start
    monkeypatch.setattr(ServerProcess, "start", lambda *args, **options: servers.append(start(*args, **options)) or servers[-1])

    def run(*sets, engine=None, resume=None, log=None, tasksets=None):
        monkeypatch.setenv("LONGREIN_TEST_ENGINE", json.dumps(engine or {}))
        values = settings(tmp_path, model)
        if tasksets:
            del values["taskset"]
            values["tasksets"] = tasksets
        return train(from_mapping(values, sets), host=host, resume=resume, log=log)

    yield run
    assert psutil.Process().children(recursive=True) == []
    assert not list(Path(short).iterdir())
    assert not [server.weights for server in servers if server.weights.exists()]
    Path(short).rmdir()


def settings(folder, model):
    return {
        "run": {"out": str(folder / "run"), "seed": 1},
        "plugins": {"use": ["./numbers.py"]},
        "taskset": "numbers",
        "agents": {"tick": {}, "tock": {}},
        "policy": {"model": str(model)},
        "limits": {"sessions": 4},
        "train": {"max_steps": 3, "group_size": 4, "rows_per_step": 8, "learning_rate": 1e-2, "save_steps": 2},
    }


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def steps(folder):
    return [values for values in lines(folder, "metrics.jsonl") if "loss" in values]


EVAL = ("eval.taskset={name='numbers', options={first=100, n=2}}", "eval.samples=2", "eval.every=2")


def test_three_steps_with_evaluations(trains, model):
    """Weights move and are served, every figure is there, before and after are the same cells."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    said = []
    folder = trains(*EVAL, log=said.append)
    assert load(folder / "config.toml").plugins.use == (str(folder.parent / "numbers.py"),), "--resume finds the file again"
    metrics = steps(folder)
    assert [(m["step"], m["version"]) for m in metrics] == [(1, 2), (2, 3), (3, 4)]
    for m in metrics:
        assert m["canary/difference_mean"] < 1e-3
        assert m["canary/difference_max"] < 1e-2
        assert m["canary/moved_max"] > 1e-4
        assert m["staleness/max"] <= 4
        assert {"perf/weight_sync_s", "perf/fwd_bwd_s", "perf/rollout_wait_s", "perf/canary_s", "ratio"} <= set(m)
    first = metrics[0]
    assert first["ratio"] == pytest.approx(1.0, abs=1e-3)
    for agent in ("tick", "tock"):
        assert first[f"{agent}/outcome/completed"] == 1.0
        assert {f"{agent}/reward", f"{agent}/pass_rate", f"{agent}/tokens/train_total", f"{agent}/turns/aux_total"} <= set(first)
    after, before = AutoModelForCausalLM.from_pretrained(folder / "model"), AutoModelForCausalLM.from_pretrained(model)
    AutoTokenizer.from_pretrained(folder / "model")
    assert any((a != b).any() for a, b in zip(after.parameters(), before.parameters(), strict=True))

    evals = [r for r in lines(folder, "rollouts.jsonl") if r["phase"].startswith("eval")]
    cells = {
        phase: {(r["task_id"], r["agent"], r.get("sample", 0), r["seed"]) for r in evals if r["phase"] == phase}
        for phase in ("eval:0", "eval:2", "eval:3")
    }
    assert len(evals) == 3 * 2 * 2 * 2
    assert cells["eval:0"] == cells["eval:2"] == cells["eval:3"]
    assert {c["version_first"] for r in evals if r["phase"] == "eval:3" for c in calls(r)} == {4}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["agents"]["tick"]["before"]["n"] == summary["agents"]["tick"]["after"]["n"] == 4
    assert said[-1] == f"model written to {folder / 'model'}"


def calls(rollout):
    return [turn["call"] for turn in rollout["session"]["trajectory"]["turns"]]


def test_none_rewards_send_no_row_and_change_no_baseline(trains):
    folder = trains("train.max_steps=1", "taskset.options={n=1}", engine={"reward": "some_none"})
    for group in lines(folder, "groups.jsonl"):
        rewards, advantages = list(group["rewards"].values()), list(group["advantages"].values())
        assert rewards == [1.0, None, 0.0, None]
        assert group["baseline"] == 0.5
        assert [advantage is None for advantage in advantages] == [False, True, False, True]
    metrics = steps(folder)[0]
    assert metrics["tick/unscorable"] == 0.5, "counted per rollout, not per row that arrives"
    assert metrics["tick/reward"] == 0.5


def test_a_killed_engine_process_ends_training_and_resume_goes_on(trains, tmp_path):
    """kill -9 in the middle; then --resume from the last whole checkpoint: versions go on, groups are never named twice."""
    sets = ("train.max_steps=4", "train.save_steps=1", "train.max_staleness=1", *EVAL)
    with pytest.raises(RunStopped, match=r"the engine process was killed by SIGKILL; the end of .*engine.log"):
        trains(*sets, engine={"die_at": 8 + 8 * 3})
    folder = tmp_path / "run"
    assert not (folder / "summary.json").exists()
    done = states.last_checkpoint(folder)
    reached = states.read(done)
    assert 1 <= reached.step < 4
    groups_before = {group["id"] for group in lines(folder, "groups.jsonl")}

    assert trains(*sets, resume=folder) == folder
    again = [group for group in lines(folder, "groups.jsonl") if group["id"] not in groups_before]
    assert len({group["id"] for group in lines(folder, "groups.jsonl")}) == len(lines(folder, "groups.jsonl"))
    assert min(group["position"] for group in again) >= reached.place.position
    assert all(group["position"] not in reached.place.done for group in again)
    resumed = [m for m in steps(folder) if m["step"] > reached.step][-1]
    assert resumed["version"] == reached.version + 1 + (4 - reached.step)
    assert resumed["staleness/max"] <= 1
    phases = [r["phase"] for r in lines(folder, "rollouts.jsonl")]
    assert phases.count("eval:0") == 8, "the evaluation before training is not repeated"
    ids = [r["id"] for r in lines(folder, "rollouts.jsonl")]
    assert len(set(ids)) == len(ids)
    with pytest.raises(ConfigError, match="has made its 4 steps already"):
        trains(*sets, resume=folder)
    (folder / "summary.json").unlink()  # as if killed in the last evaluation
    assert trains(*sets, resume=folder) == folder
    assert json.loads((folder / "summary.json").read_text())["agents"]["tick"]["after"]["n"] == 4


def test_two_task_sets_in_proportion_through_a_kill_and_a_resume(trains, tmp_path):
    """Their tasks have the same ids. What was trained is the mixture, and the checkpoint has the curriculum."""
    sets = (
        "train.max_steps=4",
        "train.save_steps=1",
        "train.mixture={agents={tock=2}, tasksets={high=3}}",
        "train.curriculum.skip_after=2",
        "train.scale_rewards='agent'",
        "eval.tasksets={held={name='numbers', options={first=100, n=1}}, out={name='numbers', options={first=200, n=1}}}",
        "eval.samples=1",
    )
    several = {"low": {"name": "numbers"}, "high": {"name": "numbers", "options": {"first": 50}}}
    with pytest.raises(RunStopped, match="killed by SIGKILL"):
        trains(*sets, engine={"die_at": 4 + 8 * 3}, tasksets=several)
    folder = tmp_path / "run"
    reached = states.read(states.last_checkpoint(folder))
    assert reached.place.state["curriculum"].keys() == {f"{agent}/{name}" for agent in ("tick", "tock") for name in several}
    assert reached.place.state["scales"]
    assert trains(*sets, resume=folder, tasksets=several) == folder

    groups = lines(folder, "groups.jsonl")
    assert {group["task_id"] for group in groups} <= {f"low.n{i}" for i in range(3)} | {f"high.n{i}" for i in range(50, 53)}
    mixture = Mixture({"tick": 1.0, "tock": 2.0}, {"low": 1.0, "high": 3.0})
    assert all(
        (part := mixture.at(group["position"])) and (group["agent"], group["taskset"]) == (part.agent, part.taskset) for group in groups
    )
    assert {f"tock/high/{name}" for name in ("reward", "pass_rate")} <= set().union(*steps(folder))
    assert sum(m.get("mixture/tock/high/trained_total", 0) for m in steps(folder)) >= 1
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["tasksets"].keys() == {"held", "out"}
    assert summary["agents"]["tick"]["tasksets"]["held"]["after"]["n"] == 1


def test_what_the_engine_raises_is_the_reason(trains):
    with pytest.raises(RunStopped, match="the engine process failed: ValueError: the fake engine broke"):
        trains(engine={"raise_at": 3})


def test_nothing_to_train_on_is_said(trains):
    with pytest.raises(
        RunStopped, match=r"nothing to train on: 40 groups in a row gave no training row \(40 with all rewards equal; \d+ of "
    ):
        trains("train.group_size=2", engine={"reward": "same"})


def test_tasks_that_are_also_trained_on_are_refused(trains):
    with pytest.raises(ConfigError, match=r"\[eval.taskset\] has 1 tasks that are also trained on, for example 'n2'"):
        trains("eval.taskset={name='numbers', options={first=2}}")


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("reward.name='binari'", "unknown reward 'binari'.*did you mean 'binary'"),
        ("verifiers.deepcodr={}", "unknown verifier 'deepcodr'.*did you mean 'deepcoder'"),
        ("train.trl={optim='adamm'}", "adamm is not a valid"),
        ("train.trl={per_device_train_batch_size=5}", "rows_per_step 8 must be a multiple"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_is_written(trains, tmp_path, item, message):
    with pytest.raises(ConfigError, match=message):
        trains(item)
    assert not (tmp_path / "run").exists()


def test_ctrl_c_leaves_a_readable_folder_and_nothing_else(trains, tmp_path):
    def interrupt(line):
        if line.startswith("step 1/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trains(log=interrupt)
    assert lines(tmp_path / "run", "rollouts.jsonl")
    with pytest.raises(ConfigError, match="holds a run already; choose another --out, or --resume"):
        trains()


TRAIN = """
import json, sys
from pathlib import Path
from longrein.config import from_mapping
from longrein.plugins import PluginHost
from longrein.training import train, worker

worker.CHILD = (sys.executable, sys.argv[1])
host = PluginHost.load(["./numbers.py"], folder=Path(sys.argv[3]))
train(from_mapping(json.loads(sys.argv[2])), host=host, log=lambda line: print(line, file=sys.stderr, flush=True))
"""


def test_a_killed_trainer_leaves_no_process_and_no_folder(tmp_path, model):
    """kill -9 to the trainer: the engine process and the server end by themselves and remove what was lying about."""
    (tmp_path / "numbers.py").write_text(textwrap.dedent(PLUGIN))
    short = Path(tempfile.mkdtemp(prefix="lrt", dir="/tmp"))
    values = settings(tmp_path, model)
    values["train"]["max_steps"] = 1000
    command = [sys.executable, "-c", TRAIN, FAKE, json.dumps(values), str(tmp_path)]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(short)}, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("step 1/"))
        children = psutil.Process(process.pid).children(recursive=True)
        roles = [child for child in children if child.name() != "cat"]  # with which the janitor waits
        weights = Path(ControlClient(next(short.glob("lr-*/p*/control.sock"))).status()["weights"])
        assert weights.is_dir()
        process.kill()
    assert len(roles) == 3, "engine, server, and the janitor of the folder with their sockets"
    assert psutil.wait_procs(children, timeout=60)[1] == []
    assert not weights.exists()
    assert not list(short.iterdir())
    short.rmdir()
