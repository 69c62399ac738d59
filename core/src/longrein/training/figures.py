"""Figures of rollouts and groups, counted where everything is seen: skipped groups and unscorable rollouts included."""

from __future__ import annotations

from longrein.model import OUTCOMES, Rollout, Trajectory
from longrein.turns import audit

Values = dict[str, float | tuple[float, float]]
"""A number (a key with the word `total` is summed by TRL), or (numerator, denominator) of a rate."""


def of_rollout(rollout: Rollout, trajectory: Trajectory) -> Values:
    """Return the figures of one rollout.

    Args:
        rollout: with its final reward.
        trajectory: its turns with the labels that hold after rows were built.
    """
    agent, status = rollout.agent, rollout.verdict.status
    values: Values = {f"{agent}/unscorable": (float(status == "unscorable"), 1.0)}
    if rollout.reward.value is not None:
        values[f"{agent}/reward"] = (rollout.reward.value, 1.0)
    for name, detail in rollout.reward.details.items():
        if isinstance(detail, (int, float)) and not isinstance(detail, bool):
            values[f"{agent}/reward/{name}"] = (float(detail), 1.0)
    if status != "unscorable":
        values[f"{agent}/pass_rate"] = (float(status == "passed"), 1.0)
    for kind in OUTCOMES:
        values[f"{agent}/outcome/{kind}"] = (float(rollout.outcome.kind == kind), 1.0)
    values[f"{agent}/session_s"] = (rollout.session.wall_s, 1.0)
    values[f"{agent}/calls"] = (float(len(trajectory)), 1.0)
    for audited in audit([(agent, trajectory)]).agents:  # the figures of `longrein turns`
        values |= {f"{agent}/{key}_total": count for key, count in audited.metrics().items()}
    return values


def of_group(skipped: str | None, n_rows: int) -> Values:
    """Return the figures of one group."""
    reasons = ("no_variance", "too_few_scored", "no_row")
    values: Values = {f"groups/skipped_{reason}": (float(skipped == reason), 1.0) for reason in reasons}
    values["groups/trained"] = (float(skipped is None), 1.0)
    values["groups/rows_total"] = float(n_rows)
    return values
