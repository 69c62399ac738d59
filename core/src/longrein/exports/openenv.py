"""Rollouts as openenv's `TrainingTrace`: every call of the agent's own once, with its tokens and the mask to train."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from longrein.exports.left_out import LeftOut, not_for_training
from longrein.model import Rollout, Turn

OWN = ("train", "context")
"""Labels of the agent's own turns; the others are no part of a trace."""


def trace(rollout: Rollout, *, reward: float | None) -> Iterator[dict[str, Any] | LeftOut]:
    """Yield the trace of a rollout, checked by openenv's own type, or why there is none.

    A train turn's sampled tokens have mask 1, a context turn's 0. openenv keeps rewards apart from traces; here each turn's
    `metadata` has it, with the rollout, the label and the policy versions.

    Args:
        rollout: with its final labels.
        reward: the final one.
    """
    from openenv.core.harness.training import TrainingTrace
    from pydantic import ValidationError

    if reason := not_for_training(rollout):
        yield LeftOut(reason)
        return
    about = {
        "rollout_id": rollout.id,
        "group_id": rollout.group_id,
        "agent": rollout.agent,
        "taskset": rollout.taskset,
        "task_id": rollout.task_id,
        "verdict": rollout.verdict.status,
        "score": rollout.verdict.score,
        "reward": reward,
    }
    turns = [_turn(rollout, turn, about) for turn in rollout.trajectory if turn.label.label in OWN]
    try:
        checked = TrainingTrace.model_validate({"turns": turns})
    except ValidationError as error:
        yield LeftOut(f"openenv refuses it: {error.errors()[0]['msg']:.200}")
        return
    yield checked.model_dump(mode="json")


def _turn(rollout: Rollout, turn: Turn, about: dict[str, Any]) -> dict[str, Any]:
    call, trajectory = turn.call, rollout.trajectory
    prompt, sampled = trajectory.prompt_ids(call.id), list(call.sampled_ids)
    return {
        "node_id": call.id,
        "prompt_token_ids": prompt,
        "completion_token_ids": sampled,
        "per_token_logps": [float(value) for value in call.logprobs],
        "loss_mask": [0] * len(prompt) + [int(turn.label.label == "train")] * len(sampled),
        "request": {
            "messages": [dict(message) for message in trajectory.messages(call.id)],
            "tools": list(trajectory.tools.get(call.tools_key or "", ())),
        },
        "response": {"choices": [{"message": dict(call.reply), "finish_reason": call.finish_reason}]},
        "metadata": {
            **about,
            "index": call.index,
            "label": turn.label.label,
            "reason": turn.label.reason,
            "decided_by": turn.decided_by,
            "version_first": call.version_first,
            "version_last": call.version_last,
            "requested_sampling_params": dict(call.requested_sampling),
        },
    }
