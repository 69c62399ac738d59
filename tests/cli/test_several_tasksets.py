"""`run`, `compare` and `regrade` with two task sets whose tasks have the same ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Cli

from longrein.rollout.record import read_rollouts, read_tasks

CONFIG = """
[tasksets.first]
name = "deepcoder:primeintellect"
options = { path = "first.jsonl" }

[tasksets.second]
name = "deepcoder:primeintellect"
options = { path = "second.jsonl" }

[agents.oracle]

[compare]
samples = 1
"""


def rows(factor: int, solution: str) -> str:
    tests = [{"type": "stdin_stdout", "input": f"{k}\n", "output": f"{factor * k}\n"} for k in range(5)]
    row = {"problem": f"Multiply by {factor}.", "solutions": [f"```python\n{solution}\n```"], "tests": json.dumps(tests)}
    return json.dumps(row) + "\n"


@pytest.mark.timeout(400)
def test_their_tasks_stay_apart_in_records_grades_and_tables(longrein: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("first.jsonl").write_text(rows(2, "print(2 * int(input()))"))
    Path("second.jsonl").write_text(rows(3, "print(5)"))
    Path("config.toml").write_text(CONFIG)
    done = longrein("compare", "config.toml", "--out", "run")
    assert "50.0 %" in done.out
    found = {rollout.task_id: rollout for rollout in read_rollouts(Path("run"))}
    assert {(r.taskset, task, r.verdict.status) for task, r in found.items()} == {
        ("first", "first.primeintellect-0", "passed"),
        ("second", "second.primeintellect-0", "failed"),
    }
    given = read_tasks(Path("run"))
    assert {key[:2] for key in given} == {("first", "first.primeintellect-0"), ("second", "second.primeintellect-0")}
    assert "Multiply by 3." in given["second", "second.primeintellect-0", found["second.primeintellect-0"].task_digest].prompt
    assert json.loads(Path("run/comparison.json").read_text())["figures"][0]["tasks"].keys() == found.keys()
    by_set = json.loads(Path("run/summary.json").read_text())["tasksets"]
    assert {name: figures["run"]["pass_rate"] for name, figures in by_set.items()} == {"first": 1.0, "second": 0.0}

    longrein("regrade", "run")
    again = {rollout.task_id: rollout.verdict.status for rollout in read_rollouts(Path("run/regraded-1.jsonl"))}
    assert again == {task: rollout.verdict.status for task, rollout in found.items()}
    resumed = longrein("compare", "--resume", "run")
    assert "50.0 %" in resumed.out
    assert len(list(read_rollouts(Path("run")))) == 2, "nothing was missing"
