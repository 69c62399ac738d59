"""Chat messages for SFT: every train turn of a passed rollout, as a prompt and the completion to learn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from longrein.exports.left_out import MISSHAPEN, LeftOut, misshapen, not_for_training
from longrein.model import Rollout, Turn
from longrein.serve.request import BadRequest
from longrein.serve.template import plain_message
from longrein.turns.policy import truncated


def examples(rollout: Rollout) -> Iterator[dict[str, Any] | LeftOut]:
    """Yield an example for each train turn of a passed rollout, in TRL's conversational prompt-completion form.

    The prompt is what the call sent, whole and as the policy's chat template is given it; the completion is its reply and
    nothing else. So whatever the agent did to its history, a reply is learned behind exactly what it was sampled behind, once,
    and replies of other turns are never learned. One conversation with marks could not say that: TRL trains all of its
    assistant messages or none.
    """
    if reason := not_for_training(rollout):
        yield LeftOut(reason)
    elif rollout.verdict.status != "passed":
        yield LeftOut(rollout.verdict.status)
    else:
        for turn in rollout.trajectory:
            if turn.label.label == "train":
                yield _example(rollout, turn)


def _example(rollout: Rollout, turn: Turn) -> dict[str, Any] | LeftOut:
    call = turn.call
    if truncated(turn):  # as a message it would end where the model did not
        return LeftOut("the reply was cut by length", "turn")
    try:
        prompt = [plain_message(message) for message in rollout.trajectory.messages(call.id)]
        completion = [plain_message({**call.reply, "role": "assistant"})]
    except BadRequest as error:
        return LeftOut(f"no chat template takes it: {error}", "turn")
    except MISSHAPEN as error:
        return LeftOut(misshapen(error), "turn")
    return {
        "prompt": prompt,
        "completion": completion,
        "tools": list(rollout.trajectory.tools.get(call.tools_key or "", ())),
        "rollout_id": rollout.id,
        "call_id": call.id,
        "agent": rollout.agent,
        "task_id": rollout.task_id,
    }
