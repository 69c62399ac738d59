"""Curves of a training run over its steps and groups, as the page draws them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import field, frozen

from longrein.config import Config
from longrein.model import LABELS
from longrein.rollout.summary import Cell, rate

BINS = 12
"""Points of the curve over groups."""


@frozen
class Line:
    """One curve. `points` are (x, y), or (x, y, low, high) with a 95 % interval."""

    name: str
    points: Sequence[Sequence[float]]
    dots: bool = False
    """True for single measurements that no line joins."""


@frozen
class Chart:
    """One plot of a training run."""

    title: str
    note: str
    x: str
    y: str
    lines: Sequence[Line]
    scale: str = "linear"
    """linear, share (0 to 1, shown in percent), log, or stack (shares that add up to 1)."""
    bounds: Mapping[str, float] = field(factory=dict)
    """Name to value of what must not be crossed."""


def charts(
    metrics: Iterable[Mapping[str, Any]], groups: Sequence[Mapping[str, Any]], evals: Sequence[Cell], config: Config | None
) -> list[Chart]:
    """Return the plots for which a run has figures.

    Args:
        metrics: the lines of metrics.jsonl.
        groups: the lines of groups.jsonl.
        evals: cells of all evaluations, phase `eval:STEP`.
        config: the run's config, for the bounds that it sets.
    """
    steps: dict[int, dict[str, Any]] = defaultdict(dict)
    for line in metrics:
        steps[line.get("step", 0)].update(line)
    agents = sorted({*(agent for group in groups for agent in _agents(group).values()), *(cell.agent for cell in evals)})
    step = "optimizer step"

    def series(name: str, key: str) -> Line:
        return Line(name, [(at, values[key]) for at, values in sorted(steps.items()) if _finite(values.get(key))])

    passed = [series(agent, f"{agent}/pass_rate") for agent in agents] + [_evaluated(agent, evals) for agent in agents]
    stale = {"max_staleness": float(config.train.max_staleness)} if config else {}
    found = [
        Chart("Pass rate by step", "Lines: training rollouts. Points: evaluations, with 95 % intervals.", step, "passed", passed, "share"),
        Chart(
            "Pass rate by group", "All training rollouts in the order of their groups, with 95 % intervals.", "group", "passed",
            [_by_group(agent, groups) for agent in agents], "share",
        ),
        Chart("Reward by step", "Mean over the rollouts that have one.", step, "reward", [series(a, f"{a}/reward") for a in agents]),
        Chart("Labels by step", "Share of the model calls.", step, "calls", _labels(steps, agents), "stack"),
        Chart("Staleness", "Policy versions that a trained row lagged behind at the loss.", step, "versions",
              [series("mean", "staleness/mean"), series("most", "staleness/max")], bounds=stale),
        Chart("Importance ratio", "Mean over trained tokens; 1 when the policy that sampled is the one that learns.", step, "ratio",
              [series("ratio", "ratio")]),
        Chart("Canary", "Served against trained log-probability after each weight sync, in nats.", step, "nats",
              [series("mean", "canary/difference_mean"), series("most", "canary/difference_max")], "log"),
        Chart("Loss", "GRPO loss as the trainer logs it.", step, "loss", [series("loss", "loss")]),
        Chart("Entropy", "Of the policy at the trained tokens, in nats.", step, "nats", [series("entropy", "entropy")]),
        Chart("Seconds of a step", "The whole step, and the part of it that waited for rollouts.", step, "s",
              [series("step", "perf/step_s"), series("waited for rollouts", "perf/rollout_wait_s")]),
    ]  # fmt: skip
    kept = [_with_data(chart) for chart in found]
    return [chart for chart in kept if chart.lines]


def _with_data(chart: Chart) -> Chart:
    lines = [line for line in chart.lines if line.points]
    return Chart(chart.title, chart.note, chart.x, chart.y, lines, chart.scale, chart.bounds)


def _evaluated(agent: str, evals: Sequence[Cell]) -> Line:
    by_step: dict[int, list[Cell]] = defaultdict(list)
    for cell in evals:
        if cell.agent == agent:
            by_step[int(cell.phase.rpartition(":")[2])].append(cell)
    return Line(agent, [point for at, cells in sorted(by_step.items()) if (point := _rate_point(at, cells))], dots=True)


def _by_group(agent: str, groups: Sequence[Mapping[str, Any]]) -> Line:
    mine = sorted((group for group in groups if agent in _agents(group).values()), key=lambda group: group["number"])
    size = max(1, math.ceil(len(mine) / BINS))
    points = []
    for start in range(0, len(mine), size):
        part = mine[start : start + size]
        cells = [
            Cell(agent, "", "train", None if status == "unscorable" else status == "passed", "", None)
            for group in part
            for rollout, status in group["statuses"].items()
            if _agents(group)[rollout] == agent
        ]
        if point := _rate_point(sum(group["number"] for group in part) / len(part), cells):
            points.append(point)
    return Line(agent, points)


def _agents(group: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the agent of each rollout of a group."""
    agents: Mapping[str, str] = group.get("agents") or dict.fromkeys(group["statuses"], group["agent"])
    return agents


def _rate_point(at: float, cells: Sequence[Cell]) -> tuple[float, float, float, float] | None:
    figures = rate(cells)
    return None if figures["pass_rate"] is None else (at, figures["pass_rate"], *figures["interval"])


def _labels(steps: Mapping[int, Mapping[str, Any]], agents: Sequence[str]) -> list[Line]:
    shares: dict[str, list[tuple[float, float]]] = {label: [] for label in LABELS}
    for at, values in sorted(steps.items()):
        counts = {label: sum(values.get(f"{agent}/turns/{label}_total") or 0.0 for agent in agents) for label in LABELS}
        if total := sum(counts.values()):
            for label in LABELS:
                shares[label].append((at, counts[label] / total))
    return [Line(label, points) for label, points in shares.items() if any(y for _, y in points)]


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
