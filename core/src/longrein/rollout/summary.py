"""Pass rates with intervals, for each agent and side, as summary.json and as a table."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist, fmean
from typing import Any

from attrs import frozen

from longrein.model import Rollout

Z95 = NormalDist().inv_cdf(0.975)
MIN_PAIRS = 6
"""Fewer paired differences get no interval."""


@frozen
class Cell:
    """What a summary keeps of a rollout."""

    agent: str
    task_id: str
    phase: str
    passed: bool | None
    """None when unscorable."""
    outcome: str
    reward: float | None
    taskset: str = ""

    @classmethod
    def of(cls, rollout: Rollout) -> Cell:
        """Return the cell of a rollout."""
        status = rollout.verdict.status
        passed = None if status == "unscorable" else status == "passed"
        return cls(rollout.agent, rollout.task_id, rollout.phase, passed, rollout.outcome.kind, rollout.reward.value, rollout.taskset)


def rate(cells: Iterable[Cell]) -> dict[str, Any]:
    """Return pass_rate, n (scored), unscorable and the 95 % Wilson interval.

    The tasks are fixed, so the rate's variance is the mean of p(1-p) over tasks, which is at most that of n draws at
    the pooled rate: the interval covers at least its level. (Wilson, 1927, JASA 22:209.)
    """
    cells = list(cells)
    scored = [cell.passed for cell in cells if cell.passed is not None]
    n, passed = len(scored), sum(scored)
    rewards = [cell.reward for cell in cells if cell.reward is not None]
    return {
        "pass_rate": passed / n if n else None,
        "n": n,
        "unscorable": len(cells) - n,
        "interval": wilson(passed, n),
        "reward": fmean(rewards) if rewards else None,
    }


def wilson(passed: int, n: int) -> list[float] | None:
    """Return the 95 % Wilson score interval of `passed` out of `n`, or None when n is 0."""
    if n == 0:
        return None
    p, z2 = passed / n, Z95**2
    middle = (p + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 * math.sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n)
    return [max(0.0, middle - half), min(1.0, middle + half)]


def difference(before: Sequence[Cell], after: Sequence[Cell]) -> dict[str, Any]:
    """Return after minus before, paired by (agent, task), with a 95 % t interval over the pairs (None under 6 pairs)."""
    sides = [_by_pair(cells) for cells in (before, after)]
    deltas = [sides[1][key] - sides[0][key] for key in sides[0] if key in sides[1]]
    return {"difference": fmean(deltas) if deltas else None, "pairs": len(deltas), "interval": t_interval(deltas)}


def t_interval(values: Sequence[float]) -> list[float] | None:
    """Return the 95 % t interval of the mean of paired differences, or None for fewer than six."""
    n = len(values)
    if n < MIN_PAIRS:
        return None
    from scipy import stats

    mean = fmean(values)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1) / n)
    half = float(stats.t.ppf(0.975, n - 1)) * spread
    return [mean - half, mean + half]


def _by_pair(cells: Iterable[Cell]) -> dict[tuple[str, str], float]:
    values: dict[tuple[str, str], list[bool]] = {}
    for cell in cells:
        if cell.passed is not None:
            values.setdefault((cell.agent, cell.task_id), []).append(cell.passed)
    return {key: fmean(passed) for key, passed in values.items()}


def summarize(sides: Mapping[str, Sequence[Cell]], *, trained: Sequence[Cell] = ()) -> dict[str, Any]:
    """Return the content of summary.json. With several task sets, `tasksets` has figures of each, for each agent and pooled.

    Args:
        sides: "before" and "after" of a training run, or "run" alone.
        trained: the rollouts made for training; counted in the outcomes.
    """
    everything = [cell for cells in sides.values() for cell in cells] + list(trained)
    agents: dict[str, Any] = {}
    for agent in dict.fromkeys(cell.agent for cell in everything):
        mine = {side: [cell for cell in cells if cell.agent == agent] for side, cells in sides.items()}
        agents[agent] = _figures(mine)
        agents[agent]["outcomes"] = dict(Counter(cell.outcome for cell in everything if cell.agent == agent))
        agents[agent] |= _by_taskset(mine)
    summary: dict[str, Any] = {"agents": agents, **_by_taskset(sides)}
    if {"before", "after"} <= set(sides):
        summary["pooled"] = _figures(sides)
    return summary


def _figures(sides: Mapping[str, Sequence[Cell]]) -> dict[str, Any]:
    figures: dict[str, Any] = {side: rate(cells) for side, cells in sides.items()}
    if {"before", "after"} <= set(sides):
        figures["change"] = difference(sides["before"], sides["after"])
    return figures


def _by_taskset(sides: Mapping[str, Sequence[Cell]]) -> dict[str, Any]:
    names = dict.fromkeys(cell.taskset for cells in sides.values() for cell in cells)
    if len(names) < 2:
        return {}
    parts = {name: {side: [cell for cell in cells if cell.taskset == name] for side, cells in sides.items()} for name in names}
    return {"tasksets": {name: _figures(part) for name, part in parts.items()}}
