"""The cells of a comparison (policy, agent, task, sample), their order, and which of them a folder has already."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from attrs import evolve

from longrein.config import Config, load
from longrein.errors import ConfigError
from longrein.model import Task
from longrein.rollout.record import config_toml, read_rollouts
from longrein.rollout.spec import RolloutSpec


def plan(config: Config, tasks: Sequence[Task], policy: str = "") -> list[RolloutSpec]:
    """Return the cells of one policy in the order in which they are made.

    All tasks come before the next sample and all agents of a task together, taking turns to be first: a machine or a server
    that becomes slower meets all agents alike, and a comparison that is broken off has nearly the same cells of each.
    """
    agents = list(config.agents)
    made = []
    for sample, (position, task) in product(range(config.compare.samples), enumerate(tasks)):
        first = (sample + position) % len(agents)
        made += [RolloutSpec.of(task, agent, sample, run_seed=config.run.seed, policy=policy) for agent in agents[first:] + agents[:first]]
    return made


def check_same_config(folder: Path, config: Config) -> None:
    """Refuse to go on in a folder that another config made; its name and place may differ.

    Raises:
        ConfigError: the folder holds no run, or keys differ; the message has both values of each.
    """
    path = folder / "config.toml"
    if not path.is_file():
        raise ConfigError(f"cannot resume {folder}: it holds no run (there is no config.toml)")
    old, new = (dict(_flat(tomllib.loads(config_toml(evolve(c, run=evolve(c.run, name="", out=None)))))) for c in (load(path), config))
    differ = [
        f"{key} was {old.get(key, 'not set')!r} and is {new.get(key, 'not set')!r}"
        for key in dict.fromkeys([*old, *new])
        if old.get(key) != new.get(key)
    ]
    if not differ and list(load(path).agents) != list(config.agents):
        differ.append(f"agents were {', '.join(load(path).agents)} and are {', '.join(config.agents)}")
    if differ:
        raise ConfigError(f"cannot resume {folder} with another config: {'; '.join(differ)}. Use the same, or another --out")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def made_already(folder: Path, cells: Sequence[RolloutSpec]) -> set[str]:
    """Return the ids of the cells that a folder holds.

    Raises:
        ConfigError: it holds other rollouts too, one of them twice, or a task has changed since.
        RecordError: a line is damaged.
    """
    by_id = {cell.id: cell for cell in cells}
    found: set[str] = set()
    for rollout in read_rollouts(folder) if (folder / "rollouts.jsonl").is_file() else ():
        cell = by_id.get(rollout.id)
        if cell is None:
            raise ConfigError(f"{folder} holds rollout {rollout.id!r}, which this comparison does not make: another command made it")
        if rollout.task_digest != cell.task.digest:
            raise ConfigError(
                f"task {rollout.task_id!r} has changed since {folder} was made, so its rollouts cannot be compared; start again"
            )
        if rollout.id in found:
            raise ConfigError(f"{folder} holds rollout {rollout.id!r} twice")
        found.add(rollout.id)
    return found
