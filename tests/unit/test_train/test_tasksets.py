"""Several task sets in one config: names, ids, what is refused, and what an engine process makes of the weights."""

from pathlib import Path

import pytest
from attrs import evolve

from longrein.comparison.cells import plan
from longrein.config import from_mapping, load, task_sources
from longrein.errors import ConfigError, UnknownNameError
from longrein.model import PublicTask, Task, TaskRef
from longrein.plugins import PluginHost
from longrein.rollout.tasks import load_all, named
from longrein.training.child import agent_weights, training_tasks
from longrein.training.settings import check_mixture

EXAMPLE = Path(__file__).parents[3] / "examples" / "mixture.toml"
PLUGIN = """
import longrein
from attrs import frozen
from longrein.model import PublicTask, Task, TaskRef
from longrein.verifier import TaskSet

@frozen
class Options:
    version: int = 0
    refused: str = ""

class Same(TaskSet):
    name = "same"
    Options = Options
    def tasks(self):
        for i in range(3):
            yield Task(f"t{i}", f"digest {i}.{self.options.version}", PublicTask("p"), TaskRef("same", f"t{i}"), "v")
    def hidden(self, task_id):
        return {}
    @property
    def training_refused(self):
        return self.options.refused

class Other(Same):
    name = "other"
    def tasks(self):
        return (Task(t.id, t.digest, t.public, TaskRef("other", t.id), "v") for t in super().tasks())

@longrein.hookimpl
def longrein_tasksets():
    return [Same, Other]
"""


@pytest.fixture
def host(tmp_path):
    """A host with two task sets whose tasks have the same ids."""
    (tmp_path / "sets.py").write_text(PLUGIN)
    return PluginHost.load(["./sets.py"], folder=tmp_path)


def config(*sets, **values):
    return from_mapping({"tasksets": {"one": "same", "two": "other"}, "agents": {"a": {}, "b": {}}} | values, sets)


def test_tasks_with_the_same_id_in_two_task_sets_stay_apart(host, tmp_path):
    (tmp_path / "exclude.txt").write_text("t1\n")
    tasks = load_all(task_sources(config(f"tasksets.two.exclude='{tmp_path / 'exclude.txt'}'")), host)
    assert [task.id for task in tasks] == ["one.t0", "one.t1", "one.t2", "two.t0", "two.t2"]
    assert [task.taskset for task in tasks] == ["one"] * 3 + ["two"] * 2
    assert [(task.ref.taskset, task.ref.task_id) for task in tasks[2:4]] == [("same", "t2"), ("other", "t0")], (
        "grading is asked for the id of the set"
    )
    cells = plan(config(), tasks)
    assert len({cell.id for cell in cells}) == len({cell.group_id + str(cell.seed) for cell in cells}) == len(cells)


def test_a_single_task_set_leaves_ids_and_names_as_they_are(host):
    tasks = load_all(task_sources(config(tasksets={}, taskset="same")), host)
    assert [(task.id, task.taskset) for task in tasks] == [(f"t{i}", "same") for i in range(3)]
    assert evolve(named(tasks[0], "easy"), metadata={"x": 1}).taskset == "easy"
    assert Task("t", "d", PublicTask("p"), TaskRef("folder", "t"), "v").taskset == "folder"


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"tasksets": {"again": "same"}}, r"3 tasks that are also trained on, for example 'again.t0'"),
        ({"taskset": {"name": "other", "options": {"version": 5}}}, "3 tasks that are also trained on, for example 't0'"),
    ],
)
def test_evaluating_on_what_is_trained_on_is_refused_whatever_the_names(host, evaluation, message):
    with pytest.raises(ConfigError, match=message):
        training_tasks(config(eval=evaluation), host)


def test_equal_ids_of_different_task_sets_with_different_content_are_no_overlap(host):
    made = config(tasksets={}, taskset="same", eval={"taskset": {"name": "other", "options": {"version": 7}}})
    assert [len(tasks) for tasks in training_tasks(made, host)] == [3, 3]


def test_equal_content_is_an_overlap_under_any_name(host):
    with pytest.raises(ConfigError, match="also trained on"):
        training_tasks(config(tasksets={}, taskset="same", eval={"taskset": "other"}), host)


def test_every_task_set_must_be_for_training(host):
    with pytest.raises(ConfigError, match="not for training"):
        training_tasks(config("tasksets.two.options.refused='not for training'"), host)


def test_weights_of_what_the_config_lacks_are_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match=r"unknown agent in \[train.mixture\] agents 'opncode'.*did you mean 'opencode'"):
        check_mixture(config("train.mixture.agents.opncode=1", agents={"opencode": {}}))
    with pytest.raises(UnknownNameError, match=r"unknown task set in \[train.mixture\] tasksets 'tow'.*did you mean 'two'"):
        check_mixture(config("train.mixture.tasksets.tow=1"))
    with pytest.raises(ConfigError, match=r"tasksets gives one, two the weight 0, so nothing is left to train on"):
        check_mixture(config("train.mixture.tasksets={one=0, two=0}"))
    check_mixture(config("train.mixture.tasksets={one=0}"))


def test_weights_of_agents_are_those_of_the_policys():
    assert agent_weights(config("train.mixture.agents.b=0.5"), ["a", "b"]) == {"a": 1.0, "b": 0.5}
    with pytest.raises(ConfigError, match="gives 'b' a weight, but that agent does not call the model"):
        agent_weights(config("train.mixture.agents.b=0.5"), ["a"])
    with pytest.raises(ConfigError, match="gives a, b the weight 0, so nothing is left"):
        agent_weights(config("train.mixture.agents={a=0, b=0}"), ["a", "b"])


def test_the_example_can_be_trained_with():
    made, host = load(EXAMPLE), PluginHost.load()
    check_mixture(made)
    tasks, eval_tasks = training_tasks(made, host)
    assert {task.taskset for task in tasks} == {"few", "many"}
    assert {task.taskset for task in eval_tasks} == {"held-out"}
    assert len({task.id for task in tasks}) == len(tasks) == 32
    assert agent_weights(made, ["opencode", "aider"]) == {"opencode": 2.0, "aider": 1.0}
