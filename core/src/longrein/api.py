"""The Python API: `run`, `compare`, `train` and `grade` with the same objects as the command line."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from longrein.config import Config, PluginsConfig, task_sources
from longrein.errors import RunStopped
from longrein.model import Group, Reward, Rollout, Verdict
from longrein.plugins import PluginHost
from longrein.rollout.batch import make_rollouts
from longrein.rollout.check import check_names
from longrein.rollout.groups import group_line
from longrein.rollout.policy import need_extra
from longrein.rollout.record import RunRecorder, new_run_folder
from longrein.rollout.spec import RolloutSpec, SessionSpec
from longrein.rollout.summary import Cell, summarize
from longrein.rollout.tasks import load_all

if TYPE_CHECKING:
    from longrein.comparison.run import CompareResult


@frozen
class RunResult:
    """What `run` made."""

    folder: Path
    summary: Mapping[str, Any]
    rollouts: tuple[Rollout, ...]


def silent(_line: str) -> None:
    """Take a progress line and show nothing."""


def run(
    config: Config,
    *,
    samples: int = 1,
    host: PluginHost | None = None,
    log: Callable[[str], None] = silent,
    progress: Callable[[Rollout, int], None] | None = None,
    started: Callable[[SessionSpec], None] | None = None,
) -> RunResult:
    """Run every agent of a config on its tasks, without training.

    Args:
        config: from `longrein.config.load` or `from_mapping`.
        samples: rollouts of each (task, agent); with two or more they are compared where the reward or a hook does that.
        host: loaded plugins; default those that the config names.
        log: takes lines about what is going on.
        progress: called with each finished rollout and the number of rollouts in all.
        started: called with each session that begins.

    Raises:
        ConfigError, PluginError, MissingError: something that the config asks for cannot be had.
        CaptureError: the policy server cannot be used.
        RunStopped: too many rollouts could not be scored; the run folder holds what was made.
    """
    need_extra("run", "openenv", "uvicorn", "httpx")
    host = host or PluginHost.load(config.plugins.use)
    config = evolve(config, plugins=PluginsConfig(host.use))  # files by their whole path, as the record must name them
    check_names(config, host)
    folder = new_run_folder(config)
    tasks = load_all(task_sources(config), host)
    recorder = RunRecorder(folder)
    recorder.start(config, tasks=len(tasks), samples=samples)
    specs = [
        RolloutSpec.of(task, agent, sample, run_seed=config.run.seed)
        for task in tasks
        for sample in range(samples)
        for agent in config.agents
    ]
    made: list[Rollout] = []
    final: dict[str, Reward] = {}

    def compared(group: Group, scored: Group) -> None:
        line = group_line(group, scored)
        if line["compared"] or line["findings"]:
            recorder.group(line)
            final.update((rollout.id, rollout.reward) for rollout in scored.rollouts)

    def finished(rollout: Rollout) -> None:
        made.append(rollout)
        if progress:
            progress(rollout, len(specs))

    try:
        asyncio.run(make_rollouts(config, host, specs, recorder=recorder, finished=finished, started=started, compared=compared, log=log))
    finally:
        made = [evolve(rollout, reward=final.get(rollout.id, rollout.reward)) for rollout in made]
        summary = summarize({"run": [Cell.of(rollout) for rollout in made]})
        recorder.summary(summary)
    if made and all(rollout.verdict.status == "unscorable" for rollout in made):
        first = made[0].outcome
        raise RunStopped(f"no rollout could be scored; the first was {made[0].id}: {first.kind}: {first.reason}")
    return RunResult(folder, summary, tuple(made))


def compare(
    config: Config,
    *,
    resume: Path | None = None,
    host: PluginHost | None = None,
    log: Callable[[str], None] = silent,
    progress: Callable[[Rollout, int], None] | None = None,
    started: Callable[[SessionSpec], None] | None = None,
) -> CompareResult:
    """Run every agent of a config on the same tasks with the same policy, and compare them.

    With [compare] checkpoints every agent runs with each of these policies, and policies are compared too.

    Args:
        config: from `longrein.config.load` or `from_mapping`.
        resume: a folder to go on in: what it holds is kept and the missing rollouts are made.
        host: loaded plugins; default those that the config names.
        log: takes lines about what is going on.
        progress: called with each finished rollout and the number of rollouts to make.
        started: called with each session that begins.

    Returns:
        The run folder and the comparison, which is comparison.json in the folder.

    Raises:
        ConfigError, PluginError, MissingError: something that the config asks for cannot be had, or the folder to go on in was
            made by another config.
        CaptureError: the policy server cannot be used.
        RunStopped: too many rollouts could not be scored; the run folder holds what was made.
    """
    from longrein.comparison.run import compare as run_comparison

    return run_comparison(config, resume=resume, host=host, log=log, progress=progress, started=started)


def train(config: Config, *, resume: Path | None = None, host: PluginHost | None = None, log: Callable[[str], None] = silent) -> Path:
    """Train the policy of a config through its agents and return the run folder; see `longrein.training`."""
    need_extra("train", "torch", "trl", "transformers")
    from longrein.training import train as run_training

    return run_training(config, resume=resume, host=host, log=log)


def grade(
    taskset: str, task_id: str, workspace: Path, *, options: Mapping[str, Any] | None = None, host: PluginHost | None = None
) -> Verdict:
    """Grade a workspace folder against one task of a task set, as a session would be.

    Args:
        taskset: a registered name, "name:config", or a folder ending in "/".
        task_id: one of its task ids.
        workspace: folder with the files to grade; not changed.
        options: options of the task set.
    """
    from longrein.config import TasksetConfig
    from longrein.errors import UnknownNameError
    from longrein.rollout.tasks import open_taskset

    host = host or PluginHost.load()
    tasks = {task.id: task for task in open_taskset(TasksetConfig(taskset, options=options or {}), host).tasks()}
    if task_id not in tasks:
        raise UnknownNameError(f"task of {taskset}", task_id, tasks)
    task = tasks[task_id]
    hidden = host.taskset(task.ref.taskset, task.ref.options).hidden(task.ref.task_id)
    return asyncio.run(_grade_files(host, task.verifier, hidden, workspace))


async def _grade_files(host: PluginHost, verifier: str, hidden: Any, workspace: Path) -> Verdict:
    from longrein.rollout.grading import Grader

    files = {str(path.relative_to(workspace)): path.read_bytes() for path in sorted(workspace.rglob("*")) if path.is_file()}
    with tempfile.TemporaryDirectory(prefix="lr-") as runtime:
        grader = Grader(host, Path(runtime))
        try:
            return await grader.grade_hidden(hidden, verifier, files)
        finally:
            grader.close()


def grade_row(
    taskset: str, row: Mapping[str, Any], workspace: Path, *, config: str | None = None, host: PluginHost | None = None
) -> Verdict:
    """Grade a workspace folder against all cases of one raw row of a data set.

    Args:
        taskset: a task set that takes raw rows, such as deepcoder.
        row: the row as the data set has it.
        workspace: folder with the files to grade; not changed.
        config: which config of the data set the row is from.

    Raises:
        TaskError: the row cannot be put into the verifier's form; the message is the reason.
    """
    host = host or PluginHost.load()
    opened = host.taskset(taskset, {"config": config} if config else {})
    verifier, hidden = opened.row(row)
    return asyncio.run(_grade_files(host, verifier, hidden, workspace))


def with_limit(config: Config, limit: int | None, out: Path | None) -> Config:
    """Return the config with a limit for each task set and a run folder from the command line."""
    if limit is not None:
        sets = {name: evolve(section, limit=limit) for name, section in task_sources(config).items()}
        config = evolve(config, tasksets=sets) if config.taskset is None else evolve(config, taskset=sets[""])
    return evolve(config, run=evolve(config.run, out=out)) if out is not None else config
