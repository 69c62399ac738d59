"""Figures of rollouts and groups, counted where everything is seen: skipped groups and unscorable rollouts included."""

from __future__ import annotations

from collections import Counter

from longrein.model import LABELS, OUTCOMES, Rollout, Trajectory

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
    if status != "unscorable":
        values[f"{agent}/pass_rate"] = (float(status == "passed"), 1.0)
    for kind in OUTCOMES:
        values[f"{agent}/outcome/{kind}"] = (float(rollout.outcome.kind == kind), 1.0)
    values[f"{agent}/session_s"] = (rollout.session.wall_s, 1.0)
    values[f"{agent}/calls"] = (float(len(trajectory)), 1.0)
    tokens, turns = Counter[str](), Counter[str]()
    for turn in trajectory:
        tokens[turn.label.label] += len(turn.call.sampled_ids)
        turns[turn.label.label] += 1
    for label in LABELS:
        values[f"tokens/{label}_total"] = float(tokens[label])
        values[f"turns/{label}_total"] = float(turns[label])
    continued = sum(turn.call.parent_id is not None for turn in trajectory)
    values["turns/continued"] = (float(continued), float(max(0, len(trajectory) - 1)))
    return values


def of_group(skipped: str | None, n_rows: int) -> Values:
    """Return the figures of one group."""
    reasons = ("no_variance", "too_few_scored", "no_row")
    values: Values = {f"groups/skipped_{reason}": (float(skipped == reason), 1.0) for reason in reasons}
    values["groups/trained"] = (float(skipped is None), 1.0)
    values["groups/rows_total"] = float(n_rows)
    return values
