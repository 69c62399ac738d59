"""Training through the real opencode and the real Aider, on the practice policy, the real verifier and TRL's trainer."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from longrein.rollout.record import read_rollouts
from longrein.turns import build_rows

ROOT = Path(__file__).resolve().parents[2]
QUICKSTART = ROOT / "examples" / "quickstart.toml"
SMALL = (
    "train.max_steps=3",
    "train.rows_per_step=8",
    "train.group_size=4",
    "train.save_steps=2",
    "eval.samples=1",
    "eval.taskset.limit=2",
    "turns.policy=all_turns",
)


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a JSONL file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def weights(folder: Path) -> dict[str, Any]:
    """Return a model's tensors."""
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.timeout(900)
def test_three_steps_through_both_real_agents(practice_policy: Path, tmp_path: Path, nothing_left: Path) -> None:
    out, shared = tmp_path / "run", set(Path("/dev/shm").glob("longrein*"))
    command = [sys.executable, "-m", "longrein", "train", str(QUICKSTART), "--out", str(out), "--json"]
    sets = (*SMALL, f"policy.model={practice_policy}")
    done = subprocess.run([*command, *(part for item in sets for part in ("--set", item))], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    metrics = [entry for entry in lines(out / "metrics.jsonl") if "canary/difference_mean" in entry]
    assert [entry["step"] for entry in metrics] == [1, 2, 3]
    for entry in metrics:
        assert entry["canary/difference_mean"] < 1e-3
        assert entry["canary/difference_max"] < 1e-2
        assert entry["canary/moved_max"] > 0

    before, after = weights(practice_policy), weights(out / "model")
    assert before.keys() == after.keys()
    assert sum(bool((before[name] != after[name]).any()) for name in before) > len(before) / 2

    rollouts = list(read_rollouts(out))
    for agent in ("opencode", "aider"):
        mine = [rollout for rollout in rollouts if rollout.agent == agent]
        assert {rollout.phase for rollout in mine} == {"eval:0", "train", "eval:3"}
        assert all(rollout.verdict.status != "unscorable" for rollout in mine), [r.outcome for r in mine]
        sides = json.loads(done.stdout)["agents"][agent]
        assert sides["before"]["n"] == sides["after"]["n"] == 2
    assert any(group["rows"] for group in lines(out / "groups.jsonl"))
    one_row = [r for r in rollouts if r.agent == "opencode" and [t.label.label for t in r.trajectory] == ["train"] * 3]
    assert one_row
    for rollout in one_row:
        rows = build_rows(rollout.trajectory, rollout_id=rollout.id, agent=rollout.agent, token_budget=None).rows
        assert [len(row.call_ids) for row in rows] == [3]
        assert rows[0].n_trained == sum(len(turn.call.sampled_ids) for turn in rollout.trajectory)
    left, deadline = set(Path("/dev/shm").glob("longrein*")) - shared, time.monotonic() + 120
    while any(folder.exists() for folder in left) and time.monotonic() < deadline:  # those of a test beside this one go with it
        time.sleep(0.1)
    assert not [folder for folder in left if folder.exists()]
