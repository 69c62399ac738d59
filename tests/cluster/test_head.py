"""The cluster's head dies under a training run: the run ends by itself, its folder is whole, and it goes on with another cluster."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tomli_w
from tests.e2e.conftest import TOY
from tests.unit.test_train.conftest import model  # noqa: F401 (a fixture)

from longrein.rollout.record import read_lines, read_rollouts

pytestmark = [pytest.mark.timeout(600), pytest.mark.filterwarnings("default")]
PLUGIN = Path(__file__).with_name("plugin.py")
HEAD = """
import signal, sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def start_cluster() -> tuple[subprocess.Popen[str], str]:
    """Start a cluster of one node and return its process and address."""
    made = subprocess.Popen([sys.executable, "-c", HEAD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert made.stdout
    return made, made.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a process and everything below it."""
    below = psutil.Process(process.pid).children(recursive=True)
    for each in (*below, psutil.Process(process.pid)):
        each.kill()
    process.communicate()


@pytest.mark.more
def test_a_run_whose_head_dies_ends_and_goes_on(tmp_path: Path, model: Path) -> None:  # noqa: F811
    run = tmp_path / "run"
    config = {
        "taskset": "doubling",
        "agents": {"program": {"code": "ask('go')"}},
        "plugins": {"use": [str(TOY), str(PLUGIN)]},
        "policy": {"model": str(model)},
        "limits": {"sessions": 2, "max_reply_tokens": 8},
        "reward": {"name": "parity"},
        "train": {"max_steps": 8, "group_size": 4, "rows_per_step": 8, "learning_rate": 1e-2, "save_steps": 1},
        "executor": {"name": "ray", "session_cpus": 0.5, "grader_cpus": 0.5},
    }
    path = tmp_path / "head.toml"
    path.write_text(tomli_w.dumps(config))
    longrein = [sys.executable, "-m", "longrein", "train"]

    def steps() -> list[int]:
        return [line["step"] for line in read_lines(run / "metrics.jsonl") if "loss" in line] if (run / "metrics.jsonl").exists() else []

    cluster, address = start_cluster()
    where = ["--set", f"executor.address={address}"]
    training = subprocess.Popen([*longrein, str(path), "--out", str(run), *where], stderr=subprocess.PIPE, text=True)
    try:
        while not list(run.glob("checkpoints/checkpoint-*")):
            assert training.poll() is None, training.communicate()
            time.sleep(0.1)
        kill(cluster)
        _, said = training.communicate(timeout=300)
    finally:
        training.kill()
    assert training.returncode == 1, said
    assert "the head of the Ray cluster" in said
    assert "--resume" in said
    n_steps = steps()
    assert n_steps
    assert len(n_steps) < 8
    assert list(read_rollouts(run))
    cluster, address = start_cluster()
    try:
        subprocess.run([*longrein, "--resume", str(run), "--set", f"executor.address={address}"], check=True, timeout=300)
    finally:
        kill(cluster)
    assert steps()[-1] == 8
