"""From a config's task set section to tasks."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from longrein.config import TasksetConfig
from longrein.errors import ConfigError, TaskError
from longrein.model import Task
from longrein.tasks.harbor import holds_tasks

if TYPE_CHECKING:
    from longrein.plugins import PluginHost
    from longrein.verifier import TaskSet

COMMENT = re.compile(r"(^|\s)#.*")
"""In a list of excluded tasks; an id may hold a # of its own."""


def open_taskset(config: TasksetConfig, host: PluginHost) -> TaskSet:
    """Return the task set that a name such as "practice", "deepcoder:taco" or "folder/" means."""
    name, options = config.name, dict(config.options)
    if name.endswith("/") or (Path(name).is_dir() and name not in host.names("taskset")):
        return host.taskset("harbor" if holds_tasks(Path(name)) else "folder", {"path": name, **options})
    base, sep, part = name.partition(":")
    return host.taskset(base, {"config": part, **options} if sep else options)


def load_tasks(config: TasksetConfig, host: PluginHost) -> list[Task]:
    """Return the tasks of a config section, after `exclude` and up to `limit`.

    Raises:
        TaskError: nothing is left, or two tasks share an id.
    """
    taskset = open_taskset(config, host)
    left_out = _excluded(config.exclude)
    tasks = list(itertools.islice((task for task in taskset.tasks() if task.id not in left_out), config.limit))
    if not tasks:
        rejected = ", ".join(f"{len(ids)} {reason}" for reason, ids in taskset.rejected.items()) or "none"
        raise TaskError(f"task set {config.name!r} gave no task (rejected: {rejected}; excluded: {len(left_out)})")
    ids = [task.id for task in tasks]
    if len(set(ids)) != len(ids):
        twice = next(i for i in ids if ids.count(i) > 1)
        raise TaskError(f"task set {config.name!r} has two tasks with id {twice!r}")
    return tasks


def load_all(sources: Mapping[str, TasksetConfig], host: PluginHost) -> list[Task]:
    """Return the tasks of several task sets, one set after the other.

    Where a set has a name, the ids of its tasks begin with it ("easy.t1"): two sets may have a task "t1" each. Lists of excluded
    tasks have the ids of the set itself.

    Args:
        sources: name to section; see `longrein.config.task_sources`.
        host: the loaded plugins.

    Raises:
        TaskError: a set gives no task, or two tasks with one id.
    """
    return [named(task, name) for name, section in sources.items() for task in load_tasks(section, host)]


def named(task: Task, name: str) -> Task:
    """Return a task as one of the task set with this name in [tasksets]; unchanged where the name is empty."""
    return evolve(task, id=f"{name}.{task.id}", taskset=name) if name else task


def _excluded(path: Path | None) -> set[str]:
    if path is None:
        return set()
    try:
        lines = [COMMENT.sub("", line).strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError as error:
        raise ConfigError(f"cannot read the list of excluded tasks {path}: {error.strerror}") from error
    return {line for line in lines if line}
