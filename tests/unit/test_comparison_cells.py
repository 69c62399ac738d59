"""Which rollouts a comparison makes, in which order, with which seeds; and what a folder to go on in is refused for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.comparison.cells import check_same_config, made_already, plan
from longrein.comparison.checkpoints import config_of_run, find_checkpoints
from longrein.config import Config, from_mapping
from longrein.errors import ConfigError
from longrein.model import Outcome, PublicTask, Rollout, SessionResult, Task, TaskRef, Trajectory, Verdict
from longrein.plugins import PluginHost
from longrein.rollout.record import RunRecorder
from longrein.rollout.spec import RolloutSpec


def task(name: str, digest: str = "d") -> Task:
    return Task(name, digest, PublicTask("Do it."), TaskRef("t", name), "v")


def config(agents: int = 2, samples: int = 2, **more: Any) -> Config:
    return from_mapping({"taskset": "practice", "agents": {f"a{i}": {} for i in range(agents)}, "compare": {"samples": samples}, **more})


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4))
def test_every_cell_once_and_agents_side_by_side(n_agents: int, n_tasks: int, samples: int) -> None:
    cells = plan(config(n_agents, samples), [task(f"t{i}") for i in range(n_tasks)])
    assert len({cell.id for cell in cells}) == len(cells) == n_agents * n_tasks * samples
    for end in range(len(cells) + 1):  # however early it ends, no agent is more than one rollout ahead of another
        done = Counter(cell.agent for cell in cells[:end])
        assert max(done.values(), default=0) - min((done[f"a{i}"] for i in range(n_agents)), default=0) <= 1
    firsts = Counter(cell.agent for cell in cells[::n_agents])
    assert n_tasks < n_agents or len(firsts) == n_agents, "agents take turns to be first"


def test_a_seed_depends_on_run_seed_task_agent_and_sample_and_on_nothing_else() -> None:
    def seed(name: str = "t", agent: str = "a", sample: int = 0, run_seed: int = 0, **more: Any) -> int:
        return RolloutSpec.of(task(name), agent, sample, run_seed=run_seed, **more).seed

    assert len({seed(), seed("u"), seed(agent="b"), seed(sample=1), seed(run_seed=1)}) == 5
    assert seed() == seed(policy="after") == seed(phase="eval:3") == seed(group_id="g")
    tasks = [task(f"t{i}") for i in range(4)]
    few, many = (plan(config(n), chosen) for n, chosen in ((2, tasks[2:]), (3, tasks)))
    seeds = {cell.id: cell.seed for cell in many}
    assert all(seeds[cell.id] == cell.seed for cell in few)


def folder_of(path: Path, made_by: Config, rollouts: list[Rollout]) -> Path:
    recorder = RunRecorder(path)
    recorder.start(made_by)
    for rollout in rollouts:
        recorder.rollout(rollout)
    return path


def rollout(cell: RolloutSpec) -> Rollout:
    session = SessionResult(cell.id, cell.agent, Outcome("completed"), Trajectory())
    verdict = Verdict("passed", 1.0)
    return Rollout(cell.id, cell.group_id, cell.agent, "t", cell.task.id, cell.task.digest, cell.sample, cell.seed, session, verdict)


def test_what_a_folder_holds_is_not_made_again_and_a_torn_line_is(tmp_path: Path) -> None:
    cells = plan(config(), [task("t0"), task("t1")])
    folder = folder_of(tmp_path / "run", config(), [rollout(cell) for cell in cells[:3]])
    with (folder / "rollouts.jsonl").open("ab") as file:
        file.write(b'{"schema_version": 1, "id": "' + cells[3].id.encode())
    assert made_already(folder, cells) == {cell.id for cell in cells[:3]}
    check_same_config(folder, config())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"limits": {"timeout_s": 9}, "run": {"seed": 3}}, r"run.seed was 0 and is 3; limits.timeout_s was 300.0 and is 9.0"),
        ({"agents": 3}, r"agents.a2 was 'not set' and is \{\}"),
        ({"samples": 5}, r"compare.samples was 2 and is 5"),
    ],
)
def test_a_folder_of_another_config_is_refused_with_what_differs(tmp_path: Path, change: Any, message: str) -> None:
    folder = folder_of(tmp_path / "run", config(), [])
    with pytest.raises(ConfigError, match=rf"cannot resume .* with another config: .*{message}.*another --out"):
        check_same_config(folder, config(**change))
    check_same_config(folder, config(run={"name": "renamed", "out": "elsewhere"}))


def test_agents_in_another_order_and_a_folder_without_a_run_are_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "run", config(), [])
    turned = evolve(config(), agents={"a1": {}, "a0": {}})
    with pytest.raises(ConfigError, match="agents were a0, a1 and are a1, a0"):
        check_same_config(folder, turned)
    with pytest.raises(ConfigError, match=r"holds no run .*config.toml"):
        check_same_config(tmp_path / "absent", config())


def test_rollouts_that_are_none_of_ours_are_refused(tmp_path: Path) -> None:
    cells = plan(config(), [task("t0")])
    other = RolloutSpec.of(task("t0"), "a0", 0, run_seed=0, phase="train")
    changed = RolloutSpec.of(task("t0", "before"), "a0", 0, run_seed=0)
    for name, made, message in (
        ("other", [other], "'train.a0.t0.0', which this comparison does not make"),
        ("changed", [changed], "task 't0' has changed since"),
        ("twice", [cells[0], cells[0]], "twice"),
    ):
        with pytest.raises(ConfigError, match=message):
            made_already(folder_of(tmp_path / name, config(), [rollout(cell) for cell in made]), cells)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A run folder as training leaves it, with files in place of models."""
    base = tmp_path / "base"
    values = {
        "taskset": "practice",
        "agents": {"react": {}, "nop": {}, "gone": {}},
        "run": {"seed": 7},
        "policy": {"model": str(base)},
        "limits": {"timeout_s": 33},
        "train": {"sampling": {"temperature": 0.7}, "learning_rate": 0.5},
        "eval": {"samples": 3, "taskset": {"name": "practice", "options": {"split": "eval"}}},
    }
    folder = folder_of(tmp_path / "trained", from_mapping(values), [])
    (folder / "rollouts.jsonl").touch()
    for place in (base, folder / "model", folder / "checkpoints" / "checkpoint-10"):
        place.mkdir(parents=True)
        (place / "config.json").write_text("{}")
    return folder


def find(*given: str, **more: Any) -> list[tuple[str, tuple[str, ...] | None, str, str]]:
    values = {"taskset": "practice", "agents": {"nop": {}}, "compare": {"checkpoints": list(given)}, **more}
    found = find_checkpoints(from_mapping(values), PluginHost.load(), log=lambda line: None)
    return [(item.policy.name, item.policy.trained_with, item.model.name, item.base) for item in found]


def test_checkpoints_have_a_name_the_agents_they_were_trained_through_and_the_name_they_were_served_under(trained: Path) -> None:
    base = trained.parent / "base"
    through = ("react", "gone")
    assert find(f"{trained}@0", f"{trained}@10", str(trained), str(base)) == [
        ("trained@0", (), "base", "base"),
        ("trained@10", through, "checkpoint-10", "base"),
        ("trained", through, "model", "base"),
        ("base", None, "base", "base"),
    ]
    inside = trained / "checkpoints" / "checkpoint-10"
    assert find(str(inside), str(trained / "model")) == [
        ("trained@10", through, "checkpoint-10", "base"),
        ("trained", through, "model", "base"),
    ]
    assert [name for name, *_ in find(str(inside), f"{trained}@10")] == [str(inside), f"{trained}@10"], "same names become paths"


def test_checkpoints_that_cannot_be_had_are_refused(trained: Path) -> None:
    adapter = trained / "checkpoints" / "checkpoint-30"
    adapter.mkdir()
    (adapter / "adapter_config.json").write_text("{}")
    for named, message in (
        ((f"{trained}@20",), r"has no model of step 20; it has .*trained@0, .*trained@10$"),
        ((f"{trained}@30",), r"has no model of step 30 but a LoRA adapter, which is merged .* end; it has .*trained@0, .*trained@10$"),
        (("absent",), r"'absent' is neither a run folder, RUN@STEP"),
        ((str(trained), str(trained)), "named twice"),
    ):
        with pytest.raises(ConfigError, match=message):
            find(*named)
    with pytest.raises(ConfigError, match="leave out"):
        find(str(trained), policy={"url": "http://h/v1", "model": "m"})


def test_a_comparison_of_checkpoints_takes_the_runs_evaluation(trained: Path) -> None:
    values = config_of_run(["elsewhere", f"{trained}@0"])
    assert values is not None
    made = from_mapping(values)
    assert (made.taskset.options, made.compare.samples, made.run.seed, made.eval) == ({"split": "eval"}, 3, 7, None)
    assert (list(made.agents), made.limits.timeout_s, made.train.sampling.temperature) == (["react", "nop", "gone"], 33.0, 0.7)
    assert (made.policy.model, made.train.learning_rate, made.run.out) == ("practice", 3e-4, None)
    assert config_of_run(["elsewhere"]) is None
