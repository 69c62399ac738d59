"""`longrein export` as a person uses it: what it wrote, what it left out and why, and damaged records."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from attrs import evolve
from tests.cli.conftest import Cli

from longrein.config import from_mapping
from longrein.exports import FORMATS
from longrein.rollout.record import config_toml, read_rollouts
from longrein.testing.runs import LARGE, TINY, write_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run of two agents, eight rollouts each; the first agent's calls have tools."""
    return write_run(
        tmp_path / "run", {"opencode": evolve(LARGE, system_chars=500, prompt_tokens=60, tool_chars=20), "aider": TINY}, tasks=4, samples=2
    )


def test_each_format_says_what_it_wrote_and_left_out(longrein: Cli, run: Path) -> None:
    passed = sum(rollout.verdict.status == "passed" for rollout in read_rollouts(run))
    written = {"openenv": (16, 16), "atif": (16, 16), "sft": (2 * passed, passed)}
    for to in FORMATS:
        done = longrein("export", run, "--to", to)
        path = run / ("atif" if to == "atif" else f"{to}.jsonl")
        records, rollouts = written[to]
        assert done.err.splitlines()[-1] == f"wrote {path}: {records} records of {rollouts} rollouts; {16 - rollouts} rollouts left out"
        assert (len(list(path.iterdir())) if to == "atif" else len(path.read_text().splitlines())) == records
    assert not list(run.glob(".*"))


def test_reasons_stand_in_a_table_and_in_json(longrein: Cli, run: Path) -> None:
    done = longrein("export", run, "--to", "sft", "--out", run / "one.jsonl")
    failed = sum(rollout.verdict.status == "failed" for rollout in read_rollouts(run))
    assert done.out.splitlines()[1].split() == ["rollout", "failed", str(failed)]
    report = json.loads(longrein("export", run, "--to", "sft", "--out", run / "two.jsonl", "--json").out)
    assert (report["path"], report["left_out"], report["damaged"]) == (str(run / "two.jsonl"), {"failed": failed}, [])
    assert (run / "one.jsonl").read_bytes() == (run / "two.jsonl").read_bytes()


def test_damaged_lines_are_named_and_the_rest_is_exported(longrein: Cli, run: Path) -> None:
    record = run / "rollouts.jsonl"
    lines = record.read_bytes().splitlines(keepends=True)
    lines[2], lines[5], lines[7] = b"{torn\n", b'{"schema_version": 9}\n', b'{"schema_version": 1, "id": 5}\n'
    record.write_bytes(b"".join(lines) + b'{"schema_version": 1, "id"')
    done = longrein("export", run, "--to", "atif", code=1)
    said = done.err.splitlines()
    assert [f"line {n}" in line for n, line in zip((3, 6, 8), said[-4:-1], strict=True)] == [True] * 3
    assert "schema_version 9" in said[-3]
    assert said[-1].endswith("13 records of 13 rollouts; 3 rollouts left out")
    assert len(list((run / "atif").iterdir())) == 13


def test_nothing_is_overwritten_and_nothing_is_left_of_a_refusal(longrein: Cli, run: Path) -> None:
    before = sorted(path.name for path in run.iterdir())
    (run / "record").write_text("mine")
    assert "exists; choose another --out" in longrein("export", run, "--to", "sft", "--out", run / "record", code=2).err
    (run / "record").unlink()
    assert "holds no run" in longrein("export", run / "absent", "--to", "sft", code=1).err
    (run / "rollouts.jsonl").write_bytes(b"")
    assert "nothing of" in longrein("export", run, "--to", "openenv", code=1).err
    assert sorted(path.name for path in run.iterdir()) == before


def test_tasks_that_must_not_be_trained_on_are_not_exported_for_training(longrein: Cli, run: Path) -> None:
    assert "not known here: unknown taskset 'made'" in longrein("export", run, "--to", "sft").err
    config = from_mapping({"taskset": "deepcoder:codeforces", "agents": {"aider": {}, "opencode": {}}})
    (run / "config.toml").write_text(config_toml(config))
    for to in ("sft", "openenv"):
        assert "evaluation only" in longrein("export", run, "--to", to, "--out", run / f"2.{to}", code=2).err
    longrein("export", run, "--to", "atif")
