"""`longrein gold`, `longrein regrade` and rejected rows, as a person uses them."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_commands import longrein

from longrein.rollout.record import read_rollouts

ODD = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def stdin_row(solution: str | None, n: int = 5) -> dict[str, Any]:
    tests = [{"type": "stdin_stdout", "input": f"{k}\n", "output": f"{2 * k}\n"} for k in range(n)]
    return {"problem": "Double n.", "solutions": solution and [f"```python\n{solution}\n```"], "tests": json.dumps(tests)}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    right, public_only = "print(2 * int(input()))", "n = int(input())\nprint(2 * n if n > 1 else 7)"
    return write(tmp_path / "rows.jsonl", *map(stdin_row, (right, public_only, None, "print(", ODD)), {"problem": "x", "tests": "{"})


DEEPCODER = ("deepcoder:primeintellect", "--set", "path=rows.jsonl")


@pytest.mark.usefixtures("rows")
def test_gold_lists_what_fails_and_a_config_leaves_it_out() -> None:
    done = longrein("gold", *DEEPCODER)
    table = {tuple(line.split()) for line in done.stdout.splitlines()[1:]}
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
    options = ("--set", "taskset.options.path=rows.jsonl", "--set", "taskset.exclude=gold-deepcoder-primeintellect.txt")
    longrein("run", "--agent", "nop", "--taskset", "deepcoder:primeintellect", *options, "--out", "run")
    assert {rollout.task_id for rollout in read_rollouts(Path("run"))} == {"primeintellect-0", "primeintellect-2"}


@pytest.mark.usefixtures("rows")
def test_gold_takes_a_limit_and_keeps_an_older_list() -> None:
    shown = json.loads(longrein("gold", *DEEPCODER, "--limit", "2", "--json", "--out", "list").stdout)
    assert shown["statuses"] == {"passed": 1, "failed": 1}
    assert [result["task_id"] for result in shown["failed"]] == ["primeintellect-1"]
    before = Path("list").read_text()
    assert "list exists" in longrein("gold", *DEEPCODER, "--out", "list", code=2).stderr
    assert Path("list").read_text() == before


@pytest.mark.usefixtures("rows")
def test_gold_excludes_nothing_when_the_grader_is_in_trouble() -> None:
    options = ("--verifier", "deepcoder.python=/usr/bin/false", "--limit", "2")
    done = longrein("gold", *DEEPCODER, *options, code=1)
    assert "no solution could be graded; the first was primeintellect-0" in done.stderr
    lines = Path("gold-deepcoder-primeintellect.txt").read_text().splitlines()
    assert len(lines) == 3
    assert all(line.startswith("#") for line in lines)
    assert "unknown verifier 'deepcodr'" in longrein("gold", *DEEPCODER, "--verifier", "deepcodr.cpu_s=1", "--out", "x", code=2).stderr


@pytest.fixture
def finished(rows: Path) -> Path:
    """A run of oracle and nop on three rows: passed, failed, and a session without a solution, which was never graded."""
    arguments = ("--agent", "oracle", "--agent", "nop", "--taskset", "deepcoder:primeintellect", "--limit", "3", "--out", "run")
    longrein("run", *arguments, "--set", f"taskset.options.path={rows}")
    return Path("run")


def statuses(file: Path) -> dict[str, str]:
    return {rollout.id: rollout.verdict.status for rollout in read_rollouts(file)}


def test_regrade_repeats_the_verdicts_and_never_touches_the_run(finished: Path) -> None:
    before = (finished / "rollouts.jsonl").read_bytes()
    first, second = (json.loads(longrein("regrade", finished, "--json").stdout) for _ in range(2))
    assert (first["file"], second["file"]) == ("run/regraded-1.jsonl", "run/regraded-2.jsonl")
    assert first["changes"] == []
    assert statuses(finished / "regraded-1.jsonl") == statuses(finished)
    assert list(statuses(finished / "regraded-1.jsonl")) == list(statuses(finished)), "the order stays"
    again = {r.id: r for r in read_rollouts(finished / "regraded-1.jsonl")}["run.oracle.primeintellect-2.0"]
    assert (again.outcome.kind, again.verdict.score, again.reward.value) == ("sandbox_error", None, None)
    assert "exists" in longrein("regrade", finished, "--out", finished / "rollouts.jsonl", code=2).stderr
    assert (finished / "rollouts.jsonl").read_bytes() == before


def test_regrade_with_another_reward_and_other_limits(finished: Path) -> None:
    done = longrein("regrade", finished, "--reward", "fraction", "--set", "verifiers.deepcoder.cpu_s=9", "--out", "new.jsonl")
    assert "1 of 6 rollouts changed; wrote new.jsonl" in done.stderr
    assert "run.oracle.primeintellect-1.0  failed -> failed" in done.stdout
    changed = {r.id: r for r in read_rollouts(Path("new.jsonl"))}["run.oracle.primeintellect-1.0"]
    assert changed.reward.value == changed.verdict.score
    assert changed.reward.decided_by == "reward:fraction"
    assert "unknown reward 'fractoin'; known: binary, fraction, shaped; did you mean" in longrein(
        "regrade", finished, "--reward", "fractoin", code=2
    ).stderr


def test_what_cannot_be_graded_again_says_why_and_the_rest_goes_on(finished: Path, rows: Path) -> None:
    lines = rows.read_text().splitlines()
    rows.write_text("\n".join([lines[0], json.dumps(stdin_row("print(1)", 7)), *lines[3:]]) + "\n")  # 1 changed, 2 gone (now a broken one)
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
        report = json.loads(longrein("regrade", finished, "--json").stdout)
        got = {r.id: r for r in read_rollouts(Path(report["file"]))}
        for name, reason in {**reasons, "run.oracle.primeintellect-0.0": "the workspace archive is damaged"}.items():
            assert (got[name].verdict.status, got[name].reward.value) == ("unscorable", None)
            assert got[name].verdict.reason.startswith(reason)
    assert statuses(finished / "regraded-1.jsonl")["run.oracle.primeintellect-0.0"] == "passed"
    rows.write_text(lines[0] + "\n")
    report = json.loads(longrein("regrade", finished, "--json").stdout)
    assert report["ungraded"]["the task set no longer has this task"] == 3
    rows.unlink()
    assert "no such file of rows" in longrein("regrade", finished, code=2).stderr


def test_a_grader_in_trouble_then_is_graded_now(finished: Path) -> None:
    options = ("--set", "verifiers.deepcoder.python=/usr/bin/false")
    longrein("regrade", finished, *options, "--out", finished / "trouble")
    (finished / "rollouts.jsonl").write_bytes((finished / "trouble").read_bytes())
    assert set(statuses(finished).values()) == {"unscorable"}
    longrein("regrade", finished)
    assert sorted(statuses(finished / "regraded-1.jsonl").values()) == ["failed"] * 4 + ["passed", "unscorable"]
    kinds = {r.outcome.kind for r in read_rollouts(finished / "regraded-1.jsonl")}
    assert kinds == {"completed", "sandbox_error"}


@pytest.mark.parametrize(("folder", "said"), [(".", "no config.toml"), ("absent", "no config.toml")])
def test_a_folder_without_a_run_is_refused(folder: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in longrein("regrade", folder, code=1).stderr


def test_a_torn_or_made_up_archive_name_cannot_leave_the_workspace(finished: Path) -> None:
    path = finished / "workspaces" / "run.oracle.primeintellect-0.0.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../escaped.py", "x")
    longrein("regrade", finished)
    again = {r.id: r for r in read_rollouts(finished / "regraded-1.jsonl")}["run.oracle.primeintellect-0.0"]
    assert again.verdict.status == "unscorable"
    assert "leaves the workspace" in again.verdict.reason
