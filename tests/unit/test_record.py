"""Run folders: what is written reads back the same, whatever ended the run."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.config import from_mapping
from longrein.errors import ConfigError, RecordError
from longrein.model import (
    Action,
    CaseResult,
    Example,
    Finding,
    ModelCall,
    Outcome,
    PublicTask,
    Reward,
    Rollout,
    SessionResult,
    Task,
    TaskRef,
    Trajectory,
    Turn,
    TurnLabel,
    Usage,
    Verdict,
)
from longrein.rollout.record import RunRecorder, read_rollouts, read_tasks

text = st.text(max_size=20)
tokens = st.lists(st.integers(0, 2**31), max_size=5)


@st.composite
def calls(draw: st.DrawFn, index: int) -> ModelCall:
    sampled = draw(tokens)
    return ModelCall(
        id=f"c{index}",
        index=index,
        parent_id=f"c{index - 1}" if index and draw(st.booleans()) else None,
        context_ids=draw(tokens),
        prompt_len=draw(st.integers(0, 99)),
        sampled_ids=sampled,
        logprobs=draw(st.lists(st.floats(-50, 0), min_size=len(sampled), max_size=len(sampled))),
        usage=Usage(draw(st.none() | st.integers(0, 9)), 3),
        messages=({"role": "user", "content": draw(text)},),
        tools_key=draw(st.none() | text),
        reply={"role": "assistant", "content": draw(text), "tool_calls": [{"function": {"name": draw(text), "arguments": "{}"}}]},
        requested_sampling={"temperature": 0, "stop": [draw(text)]},
        error=draw(st.none() | text),
        problem=draw(st.none() | text),
        delivered=draw(st.booleans()),
    )


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    turns = tuple(Turn(draw(calls(index)), TurnLabel("train", draw(text)), draw(text)) for index in range(draw(st.integers(0, 3))))
    score = draw(st.none() | st.floats(0, 1))
    verdict = Verdict("unscorable" if score is None else "failed", score, draw(text), (CaseResult("timeout", draw(text), cpu_s=0.5),))
    session = SessionResult(
        "s",
        draw(text),
        Outcome("completed", draw(text), draw(st.booleans())),
        Trajectory(turns, {"k": [{"type": "function", "function": {"name": draw(text)}}]}),
        exit_code=draw(st.none() | st.integers(0, 255)),
        stdout=draw(text),
        workspace={"a/b.py": draw(st.binary(max_size=20))},
        wall_s=1.5,
        sandbox={"backend": "bwrap"},
        findings=(Finding("x", draw(text)),),
    )
    reward = Reward(draw(st.none() | st.floats(-2, 2)), {"solved": 1.0}, draw(text), "reward:binary")
    return Rollout(
        "g.0", "g", "aider", "practice", draw(text), "d" * 64, 0, 7, session, verdict, (Action("run", "bash", draw(text)),), reward
    )


@settings(max_examples=60)
@given(st.lists(rollouts(), min_size=1, max_size=3), st.integers(1, 40))
def test_rollouts_read_back_the_same_and_a_torn_line_is_cut(made: list[Rollout], torn: int) -> None:
    made = [evolve(rollout, id=f"g.{i}") for i, rollout in enumerate(made)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "run"
        recorder = RunRecorder(folder)
        for rollout in made:
            recorder.rollout(rollout)
        assert list(read_rollouts(folder, workspaces=True)) == made
        path = folder / "rollouts.jsonl"
        whole = path.read_bytes()
        with path.open("ab") as file:
            file.write(whole.splitlines()[0][:torn])
        assert list(read_rollouts(folder, workspaces=True)) == made
        RunRecorder(folder, exist_ok=True).rollout(evolve(made[0], id="later"))
        assert [rollout.id for rollout in read_rollouts(folder)] == [*(rollout.id for rollout in made), "later"]


def test_a_new_run_does_not_overwrite_an_old_one(tmp_path: Path) -> None:
    (tmp_path / "rollouts.jsonl").write_text("")
    with pytest.raises(ConfigError, match=r"holds a run already.*--resume"):
        RunRecorder(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [('{"schema_version": 99}', "schema_version 99"), ('{"schema_version": 1}', "not a rollout"), ("{torn", "line 1 is damaged")],
)
def test_unknown_versions_and_damage_are_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "rollouts.jsonl").write_text(line + "\n")
    with pytest.raises(RecordError, match=message):
        list(read_rollouts(tmp_path))
    with pytest.raises(RecordError, match="holds no run"):
        list(read_rollouts(tmp_path / "absent"))


def test_keys_are_never_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LR_TEST_KEY", "sk-very-secret")
    config = from_mapping(
        {"taskset": "practice", "agents": {"nop": {}}, "policy": {"url": "http://h/v1", "model": "m", "api_key_env": "LR_TEST_KEY"}}
    )
    recorder = RunRecorder(tmp_path)
    recorder.start(config)
    recorder.summary({"agents": {}})
    for path in tmp_path.iterdir():
        assert "sk-very-secret" not in path.read_text()
    assert json.loads((tmp_path / "summary.json").read_text())["schema_version"] == 1


def test_what_agents_are_given_is_kept_once_for_each_task_and_nothing_hidden(tmp_path: Path) -> None:
    public = PublicTask("Double it.", {"solution.py": "", "a\u2028b.txt": "\u2028"}, (Example("1", "2"),), "check.py")
    task = Task(
        "double", "d" * 64, public, TaskRef("doubling", "double", {"secret": "hidden-canary"}), "exact", {"answer": "hidden-canary"}
    )
    recorder = RunRecorder(tmp_path)
    assert read_tasks(tmp_path) == {}
    recorder.task(task)
    recorder.task(task)
    with (tmp_path / "tasks.jsonl").open("a") as file:
        file.write('{"torn')
    RunRecorder(tmp_path, exist_ok=True).task(task)
    other = evolve(task, digest="e" * 64, public=PublicTask("Double it twice."))
    RunRecorder(tmp_path, exist_ok=True).task(other)
    assert read_tasks(tmp_path) == {("doubling", "double", "d" * 64): public, ("doubling", "double", "e" * 64): other.public}
    assert len((tmp_path / "tasks.jsonl").read_text().split("\n")) == 3
    assert "hidden-canary" not in (tmp_path / "tasks.jsonl").read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"schema_version": 99}', "schema_version 99"),
        ("[]", "schema_version None"),
        ("{torn", "line 1 is damaged"),
        ('{"schema_version": 1, "taskset": "t", "task_id": "i", "task_digest": "d", "public": {}}', "not a task"),
    ],
)
def test_damaged_tasks_are_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "tasks.jsonl").write_text(line + "\n")
    with pytest.raises(RecordError, match=message):
        read_tasks(tmp_path)
