"""What the page says of a whole run before a single rollout is opened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from longrein import config as configs
from longrein.comparison import Comparison
from longrein.config import Config, task_sources
from longrein.errors import ConfigError
from longrein.report.curves import charts
from longrein.report.text import cut, cut_deep
from longrein.rollout.record import read_lines
from longrein.rollout.serialize import plain
from longrein.rollout.summary import Cell, difference, rate


def overview(folder: Path, comparison: Comparison, cells: Sequence[Cell], groups: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the facts, figures and curves of a run.

    Args:
        folder: the run folder.
        comparison: of all its rollouts.
        cells: of all its rollouts.
        groups: the lines of groups.jsonl.
    """
    config = read_config(folder)
    kind = kind_of(folder, cells)
    sides = _sides(cells) if kind == "train" else {}
    return {
        "kind": kind,
        "name": folder.resolve().name,
        "facts": _facts(folder, config, cells),
        "notes": list(comparison.notes) if kind != "train" else [],
        "figures": [_without_tasks(plain(figures)) for figures in comparison.figures] if kind != "train" else [],
        "pairs": plain(comparison.pairs) if kind != "train" else [],
        "policies": plain(comparison.policies) if kind != "train" else [],
        "sides": _rates(sides),
        "changes": _changes(sides),
        "charts": plain(charts(read_lines(folder / "metrics.jsonl"), groups, [c for c in cells if _step(c) is not None], config))
        if kind == "train"
        else [],
        "config": cut((folder / "config.toml").read_text(encoding="utf-8"), where="config.toml") if config else "",
        "environment": _environment(folder),
    }


def kind_of(folder: Path, cells: Sequence[Cell]) -> str:
    """Return what made a run folder: run, compare or train."""
    if (folder / "comparison.json").exists():
        return "compare"
    trained = (folder / "metrics.jsonl").exists() or any(cell.phase != "run" for cell in cells)
    return "train" if trained else "run"


def read_config(folder: Path) -> Config | None:
    """Return the config of a run folder, or None when it has none that can be read."""
    try:
        return configs.load(folder / "config.toml")
    except ConfigError:
        return None


def _facts(folder: Path, config: Config | None, cells: Sequence[Cell]) -> list[tuple[str, str]]:
    facts = [("rollouts", f"{len(cells):,}"), ("tasks", f"{len({cell.task_id for cell in cells}):,}")]
    environment = _environment(folder)
    if config:
        policy = config.policy
        sets = ", ".join(section.name for section in task_sources(config).values())
        facts += [("task set", sets), ("policy", f"{policy.model} at {policy.url}" if policy.url else policy.model)]
        facts += [("seed", str(config.run.seed)), ("sandbox", config.sandbox.backend), ("reward", config.reward.name)]
    if version := environment.get("packages", {}).get("longrein"):
        facts.append(("longrein", version))
    return [(name, cut(str(value), where="config.toml")) for name, value in facts]


def _environment(folder: Path) -> dict[str, Any]:
    try:
        values = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return cut_deep(values, where="environment.json") if isinstance(values, dict) else {}


def _step(cell: Cell) -> int | None:
    kind, _, step = cell.phase.partition(":")
    return int(step) if kind == "eval" and step.isdigit() else None


def _sides(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the cells of each phase: evaluations in the order of their steps, then the rollouts made for training."""
    phases = sorted(
        {cell.phase for cell in cells}, key=lambda phase: (phase == "train", int(phase.rpartition(":")[2] or 0) if ":" in phase else 0)
    )
    return {phase: [cell for cell in cells if cell.phase == phase] for phase in phases}


def _rates(sides: Mapping[str, Sequence[Cell]]) -> list[dict[str, Any]]:
    rows = []
    for phase, cells in sides.items():
        rows += [{"phase": phase, "agent": name, **rate(part)} for name, part in _parts(cells).items()]
    return rows


def _parts(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Return the cells of each agent, of each agent on each task set of several, and of all agents."""
    parts: dict[str, list[Cell]] = {}
    several = len({cell.taskset for cell in cells}) > 1
    for cell in sorted(cells, key=lambda cell: (cell.agent, cell.taskset)):
        parts.setdefault(cell.agent, []).append(cell)
        if several:
            parts.setdefault(f"{cell.agent} on {cell.taskset}", []).append(cell)
    if len({cell.agent for cell in cells}) > 1:
        parts["all agents"] = list(cells)
    return parts


def _changes(sides: Mapping[str, Sequence[Cell]]) -> list[dict[str, Any]]:
    """Return the change from the first evaluation to the last, for each agent and for all."""
    evals = [phase for phase in sides if phase.startswith("eval:")]
    if len(evals) < 2:
        return []
    before, after = _parts(sides[evals[0]]), _parts(sides[evals[-1]])
    return [{"agent": name, "from": evals[0], "to": evals[-1], **difference(cells, after.get(name, ()))} for name, cells in before.items()]


def _without_tasks(figures: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in figures.items() if key != "tasks"}
