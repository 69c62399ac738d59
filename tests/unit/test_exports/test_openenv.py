"""Traces for openenv: its own type takes them, and their masks train what longrein's rows train."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from attrs import evolve
from hypothesis import given, settings
from openenv.core.harness.training import TrainingTrace
from tests.unit.test_exports.conftest import SYSTEM, rollout, rollouts, run_of

from longrein.errors import RecordError
from longrein.exports import export
from longrein.model import Rollout
from longrein.rollout.record import RunRecorder
from longrein.testing.exchanges import Exchange, message
from longrein.turns import build_rows

ASK = [SYSTEM, message("user", "Do it.")]


@settings(max_examples=60)
@given(rollouts())
def test_the_masks_train_exactly_the_tokens_of_the_rows(made: list[Rollout]) -> None:
    wanted = {
        one.id: build_rows(one.trajectory, rollout_id=one.id, agent=one.agent, token_budget=None).rows
        for one in made
        if one.verdict.status != "unscorable"
        and not one.phase.startswith("eval")
        and any(turn.label.label == "train" for turn in one.trajectory)
    }
    with run_of(made) as run:
        if not wanted:
            with pytest.raises(RecordError, match="nothing of"):
                export(run, "openenv")
            return
        path = export(run, "openenv").path
        traces = [TrainingTrace.model_validate_json(line) for line in path.read_bytes().splitlines()]
    assert [trace.turns[0].metadata["rollout_id"] for trace in traces] == list(wanted)
    for trace, rows in zip(traces, wanted.values(), strict=True):
        ours = Counter((i, p) for row in rows for i, m, p in zip(row.input_ids, row.mask, row.logprobs, strict=True) if m)
        theirs = Counter[tuple[int, float]]()
        for turn in trace.turns:
            assert {turn.metadata["label"]} <= {"train", "context"}
            mask = turn.loss_mask[len(turn.prompt_token_ids) :]
            sampled = zip(turn.completion_token_ids, mask, turn.per_token_logps, strict=True)
            theirs.update((token, logprob) for token, masked, logprob in sampled if masked)
        assert theirs == ours


def test_a_turn_has_its_prompt_messages_and_the_final_reward() -> None:
    asked = [*ASK, message("assistant", "One"), message("user", "more")]
    made = rollout([Exchange("c1", ASK, message("assistant", "One")), Exchange("c2", asked, message("assistant", "Two"))])
    with run_of([made]) as run:
        RunRecorder(run, exist_ok=True).group({"rewards": {made.id: -0.5}})
        (line,) = export(run, "openenv").path.read_text().splitlines()
    second = json.loads(line)["turns"][1]
    assert second["prompt_token_ids"] == made.trajectory.prompt_ids("c2")
    assert second["request"]["messages"] == asked
    assert second["response"]["choices"] == [{"message": message("assistant", "Two"), "finish_reason": "stop"}]
    assert (second["metadata"]["reward"], second["metadata"]["agent"], second["metadata"]["reason"]) == (-0.5, "toy", "because")


def test_what_openenv_refuses_is_left_out_with_its_reason() -> None:
    good, bad = Exchange("c1", ASK, message("assistant", "One")), {"logprobs": [0.5, 0.5]}
    made = [rollout([good]), rollout([evolve(good, call=bad)], id="bad")]
    with run_of(made) as run:
        report = export(run, "openenv")
    assert report.records == 1
    ((reason, n),) = report.left_out.items()
    assert (n, "openenv refuses it" in reason, "positive" in reason) == (1, True, True)
