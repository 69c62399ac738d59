"""SFT examples: exactly the train turns of passed rollouts, each behind what it was sampled behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from tests.unit.test_exports.conftest import SYSTEM, TOOLS, VERDICTS, rollout, rollouts, run_of

from longrein.errors import RecordError
from longrein.exports import export
from longrein.model import Rollout
from longrein.practice.tokenizer import build
from longrein.serve.template import ChatTemplate, plain_message
from longrein.testing.exchanges import Exchange, message, tool_call


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@settings(max_examples=60)
@given(rollouts())
def test_exactly_the_train_turns_of_passed_rollouts_are_in_it_each_once(made: list[Rollout]) -> None:
    wanted = [
        (one.id, turn.call.id)
        for one in made
        if one.verdict.status == "passed" and not one.phase.startswith("eval")
        for turn in one.trajectory
        if turn.label.label == "train" and turn.call.finish_reason != "length"
    ]
    with run_of(made) as run:
        if not wanted:
            with pytest.raises(RecordError, match="nothing of"):
                export(run, "sft")
            assert not list(run.glob("*sft*")), "nothing is written"
            return
        report = export(run, "sft")
        found = lines(report.path)
    assert [(example["rollout_id"], example["call_id"]) for example in found] == wanted
    assert (report.records, report.rollouts) == (len(wanted), len({name for name, _ in wanted}))
    assert report.left_out.total() == len(made) - report.rollouts
    known = {one.id: one.trajectory for one in made}
    for example in found:
        trajectory = known[example["rollout_id"]]
        turn = trajectory.turn(example["call_id"])
        assert example["prompt"] == [plain_message(m) for m in trajectory.messages(turn.call.id)]
        assert example["completion"] == [plain_message(turn.call.reply)]
        assert bool(example["tools"]) == (turn.call.tools_key is not None)


def test_reasons_are_counted_for_rollouts_and_for_turns() -> None:
    ask, one = [SYSTEM, message("user", "Do it.")], message("assistant", "One")
    cut = Exchange("c2", [*ask, one, message("user", "more")], message("assistant", "Tw"), (), {"finish_reason": "length"})
    half = Exchange("c1", ask, one, (), {"reply": message("assistant", "A half \ud83d")})
    picture: Any = [{"type": "image_url", "image_url": {"url": "data:"}}]
    whole = Exchange("c1", ask, one)
    made = [
        rollout([whole, cut], id="cut"),
        rollout([half], id="half"),
        rollout([Exchange("c1", [message("user", picture)], one)], id="picture"),
        rollout([whole], {"c1": "aux"}, id="aux"),
        rollout([whole], id="failed", verdict=VERDICTS["failed"]),
        rollout([whole], id="eval", phase="eval:8"),
        rollout([whole], id="unscorable", verdict=VERDICTS["unscorable"]),
    ]
    with run_of(made) as run:
        report = export(run, "sft")
        assert [example["completion"][0]["content"] for example in lines(report.path)] == ["One", "A half ?"]
    assert report.turns_left_out == {"the reply was cut by length": 1}
    assert report.left_out == {
        "no chat template takes it: content must be a string or a list of text parts": 1,
        "no turn with the label train": 1,
        "failed": 1,
        "made to evaluate: such tasks are never trained on": 1,
        "unscorable: completed": 1,
    }


def test_it_loads_with_datasets_and_renders_as_it_was_sampled(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    ask = [SYSTEM, message("user", "Do it.")]
    call = tool_call("write", path="é.py", n=3)
    result = message("tool", "ok", tool_call_id="call_1")
    other = tool_call("write", content="x")
    session = [
        Exchange("c1", ask, call, TOOLS),
        Exchange("c2", [*ask, call, result], other, TOOLS),
        Exchange("c3", [*ask, call, result, other, result], message("assistant", "Done."), TOOLS),
    ]
    template = ChatTemplate(build([], ["You are an agent. Do it. write path é.py ok Done."]))
    with run_of([rollout(session), rollout([Exchange("d1", ask, message("assistant", "No tools."))], id="second")]) as run:
        path = export(run, "sft", out=tmp_path / "sft.jsonl").path
    loaded = datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "cache"))
    assert loaded.to_list() == lines(path), "no key is added to a message or to a call's arguments"
    rendered = template.tokenizer.apply_chat_template
    for example, exchange in zip(loaded, session, strict=False):
        prompt = rendered(example["prompt"], tools=example["tools"], tokenize=False, add_generation_prompt=True)
        assert prompt == template.render(list(exchange.messages), list(TOOLS)), "as the policy server renders it"
        both = rendered(example["prompt"] + example["completion"], tools=example["tools"], tokenize=False)
        assert both.startswith(prompt)
