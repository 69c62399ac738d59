"""Figures of rollouts and groups, counted where everything is seen: skipped groups and unscorable rollouts included."""

from __future__ import annotations

from longrein.model import OUTCOMES, Rollout, Trajectory
from longrein.training.mixture import Part
from longrein.turns import audit

Values = dict[str, float | tuple[float, float]]
"""A number (a key with the word `total` is summed by TRL), or (numerator, denominator) of a rate."""


def of_rollout(rollout: Rollout, trajectory: Trajectory, *, by_taskset: bool = False) -> Values:
    """Return the figures of one rollout.

    Args:
        rollout: with its final reward.
        trajectory: its turns with the labels that hold after rows were built.
        by_taskset: True to give rates for the agent on this task set too.
    """
    agent, status = rollout.agent, rollout.verdict.status
    calls = [turn.call for turn in trajectory]
    values: Values = {}
    for name in (agent, f"{agent}/{rollout.taskset}") if by_taskset else (agent,):
        values[f"{name}/unscorable"] = (float(status == "unscorable"), 1.0)
        if rollout.reward.value is not None:
            values[f"{name}/reward"] = (rollout.reward.value, 1.0)
        if status != "unscorable":
            values[f"{name}/pass_rate"] = (float(status == "passed"), 1.0)
    for name, detail in rollout.reward.details.items():
        if isinstance(detail, (int, float)) and not isinstance(detail, bool):
            values[f"{agent}/reward/{name}"] = (float(detail), 1.0)
    for kind in OUTCOMES:
        values[f"{agent}/outcome/{kind}"] = (float(rollout.outcome.kind == kind), 1.0)
    values[f"{agent}/session_s"] = (rollout.session.wall_s, 1.0)
    values[f"{agent}/spanned_sync"] = (float(len({call.version_last for call in calls}) > 1), 1.0)
    values[f"{agent}/calls"] = (float(len(trajectory)), 1.0)
    for audited in audit([(agent, trajectory)]).agents:  # the figures of `longrein turns`
        values |= {f"{agent}/{key}_total": count for key, count in audited.metrics().items()}
    return values


def of_group(skipped: str | None, n_rows: int, part: Part, resting: tuple[int, int]) -> Values:
    """Return the figures of one group.

    Args:
        skipped: why it gives no row and is replaced; None when it is trained.
        n_rows: rows that it gives.
        part: what it is of.
        resting: tasks of the part that rest, and all of them.
    """
    reasons = ("no_variance", "too_few_scored", "no_row")
    values: Values = {f"groups/skipped_{reason}": (float(skipped == reason), 1.0) for reason in reasons}
    values["groups/trained"] = (float(skipped is None), 1.0)
    values["groups/rows_total"] = float(n_rows)
    values[f"mixture/{part}/trained_total"] = float(skipped is None)
    values[f"mixture/{part}/replaced_total"] = float(skipped is not None)
    values[f"mixture/{part}/resting"] = (float(resting[0]), float(resting[1]))
    return values
