"""The command line as a person uses it: results on stdout, messages on stderr, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SQUARES = {"fn_name": "sq", "inputs": [[n] for n in range(5)], "outputs": [[n * n] for n in range(5)]}


def longrein(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own and check its exit code."""
    done = subprocess.run([sys.executable, "-m", "longrein", *map(str, arguments)], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == code, done.stderr
    return done


def grade(tmp_path: Path, program: str, row: dict[str, Any], config: str, *, code: int = 0) -> dict[str, Any]:
    """Grade a program against all cases of a row."""
    (tmp_path / "work").mkdir(exist_ok=True)
    (tmp_path / "work" / "solution.py").write_text(program)
    (tmp_path / "row.json").write_text(json.dumps(row))
    arguments = ["--taskset", "deepcoder", "--config", config, "--row", tmp_path / "row.json", "--workspace", tmp_path / "work", "--json"]
    verdict: dict[str, Any] = json.loads(longrein("grade", *arguments, code=code).stdout)
    return verdict


def test_grade_grades_every_case_of_a_row(tmp_path: Path) -> None:
    row = {"problem": "Return n*n.", "tests": json.dumps(SQUARES)}
    verdict = grade(tmp_path, "def sq(n):\n    return n * n if n < 4 else 0\n", row, "taco")
    assert (verdict["status"], verdict["score"]) == ("failed", 0.8)
    assert [case["status"] for case in verdict["cases"]] == ["passed"] * 4 + ["wrong_answer"]
    assert grade(tmp_path, "def sq(n): return n ** 2", row, "taco")["status"] == "passed"


def test_a_row_that_cannot_be_graded_is_rejected_with_exit_2(tmp_path: Path) -> None:
    verdict = grade(tmp_path, "", {"problem": "x", "tests": "{"}, "taco", code=2)
    assert (verdict["status"], verdict["score"], verdict["cases"]) == ("rejected", None, [])
    assert "not JSON" in verdict["reason"]


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("run", "--agent", "opencod", "--taskset", "practice"), ("unknown agent 'opencod'", "did you mean 'opencode'?")),
        (("run", "--agent", "nop", "--taskset", "practise"), ("unknown taskset 'practise'", "did you mean 'practice'?")),
        (("run", "--agent", "nop", "--taskset", "practice", "--set", "reward.name='binar'"), ("unknown reward 'binar'", "binary")),
        (
            ("run", "--agent", "nop", "--taskset", "practice", "--set", "verifiers.deepcodr={}"),
            ("unknown verifier", "'deepcoder'? Install"),
        ),
        (("run", "--agent", "nop", "--taskset", "practice", "--set", "taskset.options={splitt='eval'}"), ("'splitt'", "split")),
        (("run", "--agent", "nop", "--taskset", "practice", "--set", "limits.timeout=3"), ("'timeout'", "timeout_s")),
        (("run", "--taskset", "practice"), ("names no agent", "[agents.opencode]")),
        (("train",), ("--resume RUN", "examples/quickstart.toml")),
        (("train", "absent.toml"), ("absent.toml", "No such file")),
        (("grade", "--taskset", "deepcoder", "--workspace", "."), ("--row FILE or --task ID",)),
        (("agents", "install", "nop"), ("built in",)),
        (("agents", "install", "aider", "opencode", "--version", "9"), ("--version 9 is for one agent", "without --system")),
    ],
)
def test_bad_input_ends_with_exit_2_and_says_what_is_known(
    arguments: tuple[str, ...], parts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = longrein(*arguments, code=2)
    assert not list(tmp_path.iterdir()), "a refused command leaves nothing behind"
    assert done.stdout == ""
    for part in parts:
        assert part in done.stderr
    assert "Traceback" not in done.stderr


def test_a_missing_agent_is_refused_with_the_command_that_installs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LONGREIN_CACHE", str(tmp_path / "cache"))
    done = longrein("run", "--agent", "aider", "--taskset", "practice", code=2)
    assert done.stderr.strip().splitlines() == ["longrein: agent aider 0.86.2 is missing: run `longrein agents install aider`"]
    assert not list(tmp_path.iterdir())


def test_listings_have_json_on_stdout() -> None:
    agents = {row["name"]: row for row in json.loads(longrein("agents", "list", "--json").stdout)}
    assert agents["nop"]["state"] == "built in"
    assert agents["opencode"]["package"].startswith("opencode-ai==")
    assert {plugin["name"]: plugin["state"] for plugin in json.loads(longrein("plugins", "--json").stdout)}["builtin"] == "ok"
    assert "practice" in json.loads(longrein("tasks", "list", "--json").stdout)
    assert len(json.loads(longrein("tasks", "show", "practice", "--limit", "3", "--json").stdout)) == 3
    assert any(check["name"] == "python" for check in json.loads(longrein("doctor", "--json").stdout))


def test_doctor_survives_a_node_that_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "node").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "node").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    checks = {check["name"]: check for check in json.loads(longrein("doctor", "--json").stdout)}
    assert (checks["node"]["state"], checks["node"]["mend"]) == ("missing", "install Node.js 18 or newer (needed for agents from npm)")
    assert "exit status 3" in checks["node"]["found"]


def test_run_and_turns_without_a_model(tmp_path: Path) -> None:
    out = tmp_path / "run"
    done = longrein("run", "--agent", "nop", "--agent", "oracle", "--taskset", "practice", "--limit", "2", "--out", out, "--json")
    summary = json.loads(done.stdout)
    assert summary["agents"]["oracle"]["run"]["pass_rate"] == 1.0
    assert summary["agents"]["nop"]["run"]["pass_rate"] == 0.0
    assert f"wrote {out}" in done.stderr
    verdicts = [json.loads(line)["verdict"] for line in (out / "rollouts.jsonl").read_text().splitlines()]
    assert all(verdict["cases"] for verdict in verdicts)
    assert '"expected"' not in json.dumps(verdicts), "hidden outputs are not recorded"
    assert json.loads(longrein("turns", out, "--json").stdout)["agents"][0]["unlabelled"] == 0
    again = longrein("run", "--agent", "nop", "--taskset", "practice", "--out", out, code=2)
    assert "holds a run already" in again.stderr


def test_a_summary_without_evaluations_shows_the_outcomes(capsys: pytest.CaptureFixture[str]) -> None:
    from longrein.cli.output import show_summary

    show_summary({"agents": {"aider": {"outcomes": {"completed": 7}}}})
    assert "completed 7" in capsys.readouterr().out


def test_examples_are_configs_that_load() -> None:
    from longrein.config import load

    for path in sorted((ROOT / "examples").glob("*.toml")):
        assert load(path).agents, path
