"""`longrein gold`, `longrein regrade` and rejected rows, as a person uses them."""

from __future__ import annotations

import json
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.cli.conftest import Cli

from longrein.config import Config, TasksetConfig
from longrein.model import CaseResult, Outcome, Reward, Rollout, SessionResult, Trajectory, Verdict
from longrein.plugins import PluginHost
from longrein.rollout.record import RunRecorder, read_rollouts
from longrein.rollout.tasks import load_tasks, open_taskset

ODD = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def stdin_row(solution: str | None, n: int = 5) -> dict[str, Any]:
    tests = [{"type": "stdin_stdout", "input": f"{k}\n", "output": f"{2 * k}\n"} for k in range(n)]
    return {"problem": "Double n.", "solutions": solution and [f"```python\n{solution}\n```"], "tests": json.dumps(tests)}


ROWS = (
    stdin_row("print(2 * int(input()))"),
    stdin_row("n = int(input())\nprint(2 * n if n not in (0, 4) else 7)"),
    stdin_row(None, 6),
    stdin_row("print("),
    stdin_row(ODD),
    {"problem": "x", "tests": "{"},
)


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write(tmp_path / "rows.jsonl", *ROWS)


DEEPCODER = ("deepcoder:primeintellect", "--set", "path=rows.jsonl")


@pytest.mark.usefixtures("rows")
def test_gold_lists_what_fails_and_a_config_leaves_it_out(longrein: Cli) -> None:
    done = longrein("gold", *DEEPCODER)
    table = {tuple(line.split()) for line in done.out.splitlines()[1:]}
    assert table == {
        ("passed", "1"),
        ("failed", "wrong_answer", "1"),
        ("failed", "compile_error", "1"),
        ("failed", "runtime_error", "1"),
        ("no", "solution", "1"),
        ("rejected", "tests", "are", "not", "JSON", "1"),
    }
    lines = Path("gold-deepcoder-primeintellect.txt").read_text().splitlines()
    assert lines[0] == "# longrein gold deepcoder:primeintellect: 1 passed, 3 failed, 1 no solution"
    assert [line.split("  # ")[0] for line in lines[1:]] == ["primeintellect-1", "primeintellect-3", "primeintellect-4"]
    assert "3 of 5 cases passed" in lines[1], "public cases are graded too"
    section = TasksetConfig("deepcoder:primeintellect", options={"path": "rows.jsonl"}, exclude=Path("gold-deepcoder-primeintellect.txt"))
    assert [task.id for task in load_tasks(section, PluginHost.load())] == ["primeintellect-0", "primeintellect-2"]


@pytest.mark.usefixtures("rows")
def test_gold_takes_a_limit_and_keeps_an_older_list(longrein: Cli) -> None:
    shown = json.loads(longrein("gold", *DEEPCODER, "--limit", "2", "--json", "--out", "list").out)
    assert shown["statuses"] == {"passed": 1, "failed": 1}
    assert [result["task_id"] for result in shown["failed"]] == ["primeintellect-1"]
    before = Path("list").read_text()
    assert "list exists" in longrein("gold", *DEEPCODER, "--out", "list", code=2).err
    assert Path("list").read_text() == before


@pytest.mark.usefixtures("rows")
def test_gold_excludes_nothing_when_the_grader_is_in_trouble(longrein: Cli) -> None:
    options = ("--verifier", "deepcoder.python=/usr/bin/false", "--limit", "2")
    done = longrein("gold", *DEEPCODER, *options, code=1)
    assert "no solution could be graded; the first was primeintellect-0" in done.err
    lines = Path("gold-deepcoder-primeintellect.txt").read_text().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("#") for line in lines)
    assert "unknown verifier 'deepcodr'" in longrein("gold", *DEEPCODER, "--verifier", "deepcodr.cpu_s=1", "--out", "x", code=2).err


@pytest.fixture
def finished(rows: Path) -> Path:
    """Return a run of oracle and nop on three rows, made by hand; one session had no solution and was never graded."""
    recorder = RunRecorder(Path("run"))
    section = TasksetConfig("deepcoder:primeintellect", limit=3, options={"path": rows.name})
    recorder.start(Config(section, agents={"oracle": {}, "nop": {}}))
    taskset = open_taskset(section, PluginHost.load())
    for task in islice(taskset.tasks(), 3):
        solution = taskset.solution(task.id) or {}
        for agent in ("oracle", "nop"):
            files = {**task.public.files, **(solution if agent == "oracle" else {})}
            session = SessionResult("s", agent, Outcome("timeout"), Trajectory(), workspace={name: files[name].encode() for name in files})
            verdict = VERDICTS[agent, task.id[-1]]
            if verdict.score is None:
                session = evolve(session, outcome=Outcome("sandbox_error", "no solution"))
            reward = Reward(None if verdict.score is None else float(verdict.status == "passed"), decided_by="reward:binary")
            name = f"run.{agent}.{task.id}.0"
            recorder.rollout(Rollout(name, name, agent, "deepcoder", task.id, task.digest, 0, 7, session, verdict, reward=reward))
    return recorder.folder


VERDICTS = {
    ("oracle", "0"): Verdict("passed", 1.0, cases=(CaseResult("passed"),) * 3),
    ("oracle", "1"): Verdict("failed", 2 / 3, cases=(*(CaseResult("passed"),) * 2, CaseResult("wrong_answer"))),
    ("oracle", "2"): Verdict.unscorable("sandbox_error: no solution"),
    ("nop", "0"): Verdict("failed", 0.0, cases=(CaseResult("no_solution"),) * 3),
    ("nop", "1"): Verdict("failed", 0.0, cases=(CaseResult("no_solution"),) * 3),
    ("nop", "2"): Verdict("failed", 0.0, cases=(CaseResult("no_solution"),) * 4),
}


def statuses(file: Path) -> dict[str, str]:
    return {rollout.id: rollout.verdict.status for rollout in read_rollouts(file)}


def test_regrade_repeats_the_verdicts_and_never_touches_the_run(longrein: Cli, finished: Path) -> None:
    before = (finished / "rollouts.jsonl").read_bytes()
    first, second = (json.loads(longrein("regrade", finished, "--json").out) for _ in range(2))
    assert (first["file"], second["file"]) == ("run/regraded-1.jsonl", "run/regraded-2.jsonl")
    assert first["changes"] == []
    assert statuses(finished / "regraded-1.jsonl") == statuses(finished)
    assert list(statuses(finished / "regraded-1.jsonl")) == list(statuses(finished)), "the order stays"
    again = {r.id: r for r in read_rollouts(finished / "regraded-1.jsonl")}["run.oracle.primeintellect-2.0"]
    assert (again.outcome.kind, again.verdict.score, again.reward.value) == ("sandbox_error", None, None)
    assert "exists" in longrein("regrade", finished, "--out", finished / "rollouts.jsonl", code=2).err
    assert (finished / "rollouts.jsonl").read_bytes() == before


def test_regrade_with_another_reward_and_other_limits(longrein: Cli, finished: Path) -> None:
    done = longrein("regrade", finished, "--reward", "fraction", "--set", "verifiers.deepcoder.cpu_s=9", "--out", "new.jsonl")
    assert "1 of 6 rollouts changed; wrote new.jsonl" in done.err
    assert "run.oracle.primeintellect-1.0  failed -> failed" in done.out
    changed = {r.id: r for r in read_rollouts(Path("new.jsonl"))}["run.oracle.primeintellect-1.0"]
    assert changed.reward.value == changed.verdict.score
    assert changed.reward.decided_by == "reward:fraction"
    assert (
        "unknown reward 'fractoin'; known: binary, fraction, ruler, shaped; did you mean"
        in longrein("regrade", finished, "--reward", "fractoin", code=2).err
    )


def test_regrade_refuses_a_misspelt_option_of_a_verifier_and_writes_nothing(longrein: Cli, finished: Path) -> None:
    before = sorted(path.name for path in finished.iterdir())
    assert "did you mean 'cpu_s'?" in longrein("regrade", finished, "--set", "verifiers.deepcoder.cpu=9", code=2).err
    assert sorted(path.name for path in finished.iterdir()) == before


def test_what_cannot_be_graded_again_says_why_and_the_rest_goes_on(longrein: Cli, finished: Path, rows: Path) -> None:
    lines = rows.read_text().splitlines()
    rows.write_text("\n".join([lines[0], json.dumps(stdin_row("print(1)", 7)), *lines[3:]]) + "\n")  # 1 and 2 changed
    archives = finished / "workspaces"
    (archives / "run.nop.primeintellect-0.0.zip").unlink()
    whole = (archives / "run.oracle.primeintellect-0.0.zip").read_bytes()
    reasons = {
        "run.nop.primeintellect-0.0": "the workspace archive is missing",
        "run.nop.primeintellect-1.0": "the task has changed",
        "run.nop.primeintellect-2.0": "the task has changed",
        "run.oracle.primeintellect-2.0": "sandbox_error",
        "run.oracle.primeintellect-1.0": "the task has changed",
    }
    longrein("regrade", finished)
    for damage in (whole[: len(whole) // 2], b"", whole.replace(b"print", b"pr1nt").replace(whole[30:60], bytes(30))):
        (archives / "run.oracle.primeintellect-0.0.zip").write_bytes(damage)
        report = json.loads(longrein("regrade", finished, "--json").out)
        got = {r.id: r for r in read_rollouts(Path(report["file"]))}
        for name, reason in {**reasons, "run.oracle.primeintellect-0.0": "the workspace archive is damaged"}.items():
            assert (got[name].verdict.status, got[name].reward.value) == ("unscorable", None)
            assert got[name].verdict.reason.startswith(reason)
    assert statuses(finished / "regraded-1.jsonl")["run.oracle.primeintellect-0.0"] == "passed"
    rows.write_text(lines[0] + "\n")
    report = json.loads(longrein("regrade", finished, "--json").out)
    assert report["ungraded"]["the task set no longer has this task"] == 3
    rows.unlink()
    assert "no such file of rows" in longrein("regrade", finished, code=2).err


def test_a_grader_in_trouble_then_is_graded_now(longrein: Cli, finished: Path) -> None:
    options = ("--set", "verifiers.deepcoder.python=/usr/bin/false")
    longrein("regrade", finished, *options, "--out", finished / "trouble")
    (finished / "rollouts.jsonl").write_bytes((finished / "trouble").read_bytes())
    assert {status for name, status in statuses(finished).items() if "oracle" in name} == {"unscorable"}
    longrein("regrade", finished)
    assert sorted(statuses(finished / "regraded-1.jsonl").values()) == ["failed"] * 4 + ["passed", "unscorable"]
    kinds = {r.outcome.kind for r in read_rollouts(finished / "regraded-1.jsonl")}
    assert kinds == {"timeout", "sandbox_error"}, "how the session ended is known again"


@pytest.mark.parametrize(("folder", "said"), [(".", "no config.toml"), ("absent", "no config.toml")])
def test_a_folder_without_a_run_is_refused(longrein: Cli, folder: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in longrein("regrade", folder, code=1).err


def test_a_torn_or_made_up_archive_name_cannot_leave_the_workspace(longrein: Cli, finished: Path) -> None:
    path = finished / "workspaces" / "run.oracle.primeintellect-0.0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../escaped.py", "x")
    longrein("regrade", finished)
    again = {r.id: r for r in read_rollouts(finished / "regraded-1.jsonl")}["run.oracle.primeintellect-0.0"]
    assert again.verdict.status == "unscorable"
    assert "leaves the workspace" in again.verdict.reason
