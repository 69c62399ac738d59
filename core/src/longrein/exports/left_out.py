"""What an export leaves out, and what may be trained on at all."""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from longrein.errors import LongreinError
from longrein.model import Rollout

MISSHAPEN = (LongreinError, ValueError, TypeError, AttributeError, LookupError, RecursionError)
"""What reading messages of no known form raises: agents and policies wrote them."""


@frozen
class LeftOut:
    """A rollout or a turn that an export cannot hold, or must not."""

    reason: str
    what: Literal["rollout", "turn"] = "rollout"


def not_for_training(rollout: Rollout) -> str | None:
    """Return why nothing of a rollout may be trained on elsewhere, or None."""
    if rollout.phase.startswith("eval"):
        return "made to evaluate: such tasks are never trained on"
    if rollout.verdict.status == "unscorable":
        return f"unscorable: {rollout.outcome.kind}"
    if not any(turn.label.label == "train" for turn in rollout.trajectory):
        return "no turn with the label train"
    return None


def misshapen(error: Exception) -> str:
    """Return why a rollout or turn is left out that could not be read."""
    return str(error)[:200] if isinstance(error, LongreinError) else f"messages of no known form ({type(error).__name__})"
