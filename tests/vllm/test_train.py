"""Training with the real vLLM and the real Aider: shared memory, LoRA adapters, two processes, a killed server, a sync left out."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.e2e.conftest import nothing_left, practice_policy  # noqa: F401 (fixtures)

from longrein.rollout.record import read_lines, read_rollouts

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("nothing_left")]
CONFIG = """
[taskset]
name = "practice"
[agents.aider]
[policy]
model = {policy}
engine = "vllm"
engine_args = ["--enforce-eager"]
[limits]
sessions = 2
timeout_s = 240
max_calls = 12
max_reply_tokens = 256
[train]
max_steps = 3
group_size = 4
rows_per_step = 8
learning_rate = 1e-3
"""
RESTARTED = "the policy server was killed by SIGKILL; starting it again"
LORA = "[train.lora]\nrank = 8\nalpha = 16\n"
NO_SYNC = """
import sys
from longrein.cli import main
from longrein.training.transfer import FileTransfer
def count(self, iterator):
    self.version += sum(1 for _ in iterator) > 0
FileTransfer.send_weights = count
main()
"""


@pytest.fixture
def config(practice_policy: Path, tmp_path: Path) -> Path:  # noqa: F811
    """The config of a short run."""
    path = tmp_path / "vllm.toml"
    path.write_text(CONFIG.format(policy=json.dumps(str(practice_policy))))
    return path


@pytest.fixture
def train(config: Path, tmp_path: Path) -> Iterator[Any]:
    """Return what starts a training command; it is ended with the test."""
    started: list[subprocess.Popen[str]] = []

    def start(*command: str) -> subprocess.Popen[str]:
        given = [*command, "train", str(config), "--out", str(tmp_path / "run"), "--json"]
        started.append(subprocess.Popen(given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            process.terminate()
            process.communicate()


def check(folder: Path, process: subprocess.Popen[str]) -> str:
    """Wait for a run and check its steps and canaries; return what it said."""
    _, said = process.communicate()
    assert process.returncode == 0, said
    steps = [entry for entry in read_lines(folder / "metrics.jsonl") if "canary/difference_mean" in entry and "loss" in entry]
    assert [entry["step"] for entry in steps] == [1, 2, 3]
    for entry in steps:
        assert entry["canary/difference_mean"] < 1e-3
        assert entry["canary/difference_max"] < 1e-2
    assert any(entry["canary/moved_max"] > 1e-3 for entry in steps), "something was learned, or nothing is shown"
    rollouts = list(read_rollouts(folder))
    assert all(rollout.verdict.status != "unscorable" for rollout in rollouts), [rollout.outcome for rollout in rollouts]
    assert {turn.call.version_first for rollout in rollouts for turn in rollout.trajectory} >= {1, 2}
    return said


def longrein() -> tuple[str, ...]:
    """Return the command of one process."""
    return sys.executable, "-m", "longrein"


def kill_server_after_a_step(process: subprocess.Popen[str], folder: Path) -> None:
    """Kill vLLM once the first step is made."""
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and '"loss"' in metrics.read_text()):
        time.sleep(0.2)
    servers = [p for p in psutil.Process(process.pid).children(recursive=True) if "vllm.entrypoints.openai.api_server" in p.cmdline()]
    assert servers, process.communicate()
    os.kill(servers[0].pid, signal.SIGKILL)


def test_three_steps_with_shared_memory_and_a_killed_server(train: Any, tmp_path: Path) -> None:
    process = train(*longrein())
    kill_server_after_a_step(process, tmp_path / "run")
    assert check(tmp_path / "run", process).count(RESTARTED) == 1


def test_a_sync_that_is_left_out_fails_the_canary(train: Any) -> None:
    process = train(sys.executable, "-c", NO_SYNC)
    _, said = process.communicate()
    assert process.returncode == 1, said
    assert "canary failed after the sync of version 2" in said
    assert "the server does not serve these weights" in said


def test_three_steps_with_lora_adapters_and_a_killed_server(train: Any, config: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    config.write_text(config.read_text() + LORA)
    process = train(*longrein())
    kill_server_after_a_step(process, tmp_path / "run")
    assert check(tmp_path / "run", process).count(RESTARTED) == 1
    before = load_file(Path(json.loads(config.read_text().split("model = ")[1].splitlines()[0])) / "model.safetensors")
    after = load_file(tmp_path / "run" / "model" / "model.safetensors")
    assert before.keys() == after.keys(), "the adapter was merged"
    moved = {name for name in before if (before[name] != after[name]).any()}
    assert moved == {name for name in before if "_proj." in name}


def test_three_steps_in_two_processes(train: Any, tmp_path: Path) -> None:
    accelerate = (sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--module", "longrein")
    said = check(tmp_path / "run", train(*accelerate))
    assert said.count("starting the policy server") == said.count("training aider on") == 1, "the second process starts nothing"
