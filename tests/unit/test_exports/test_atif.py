"""ATIF documents: every rule of the format holds, whatever agents and policies wrote, and every call is a step once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.test_exports.conftest import SYSTEM, TOOLS, VERDICTS, rollout, rollouts, run_of

from longrein.exports import export
from longrein.model import Rollout
from longrein.testing.exchanges import Exchange, message, tool_call

ASK = [SYSTEM, message("user", "Do it.")]
OF_AGENTS = ("model_name", "reasoning_content", "tool_calls", "metrics")
ROOT = {"schema_version", "session_id", "trajectory_id", "agent", "steps", "final_metrics", "extra"}
STEP = {"step_id", "source", "message", "observation", "is_copied_context", "llm_call_count", "extra", *OF_AGENTS}


def documents(folder: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.iterdir())}


def check(document: dict[str, Any]) -> None:
    """Hold a document against the rules of the format (RFC 0001, version 1.7), as its own validator does."""
    assert document["schema_version"] == "ATIF-v1.7"
    assert set(document) <= ROOT
    assert all(isinstance(document["agent"][key], str) for key in ("name", "version"))
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    assert document["final_metrics"]["total_steps"] == len(document["steps"]) > 0
    for step in document["steps"]:
        assert set(step) <= STEP
        assert step["source"] in ("system", "user", "agent")
        assert isinstance(step["message"], str)
        assert step["source"] == "agent" or not any(key in step for key in OF_AGENTS)
        calls = [call["tool_call_id"] for call in step.get("tool_calls", ())]
        assert all(isinstance(call["arguments"], dict) for call in step.get("tool_calls", ()))
        for result in step.get("observation", {}).get("results", ()):
            assert result.get("source_call_id") in (None, *calls)
        metrics = step.get("metrics", {})
        assert len(metrics.get("logprobs", ())) == len(metrics.get("completion_token_ids", ()))


@settings(max_examples=60)
@given(rollouts())
def test_every_call_is_a_step_with_its_tokens(made: list[Rollout]) -> None:
    with run_of(made) as run:
        found = documents(export(run, "atif").path)
    assert list(found) == [one.id for one in made], "also what failed, was unscorable or made to evaluate"
    for one in made:
        check(found[one.id])
        steps = [step for step in found[one.id]["steps"] if step.get("llm_call_count") == 1]
        assert [step["extra"]["call_id"] for step in steps] == [turn.call.id for turn in one.trajectory]
        assert [step["extra"]["label"] for step in steps] == [turn.label.label for turn in one.trajectory]
        assert [step["metrics"]["completion_token_ids"] for step in steps] == [list(turn.call.sampled_ids) for turn in one.trajectory]
        assert found[one.id]["extra"]["verdict"] == one.verdict.status


def test_a_conversation_reads_as_it_went() -> None:
    call, result = tool_call("write", path="a"), message("tool", "written", tool_call_id="call_1")
    said = message("assistant", "Done", reasoning_content="It is there.")
    summary = [SYSTEM, message("user", "You wrote a. Go on."), call]
    session = [
        Exchange("c1", ASK, call, TOOLS),
        Exchange("c2", [*ASK, call, result], said, TOOLS),
        Exchange("c3", summary, message("assistant", "Nothing is left.")),
    ]
    with run_of([rollout(session)]) as run:
        (document,) = documents(export(run, "atif").path).values()
    check(document)
    told = [(s["source"], s["message"], s.get("is_copied_context"), s.get("llm_call_count")) for s in document["steps"]]
    assert told == [
        ("system", "You are an agent.", None, None),
        ("user", "Do it.", None, None),
        ("agent", "", None, 1),
        ("agent", "Done", None, 1),
        ("user", "You wrote a. Go on.", None, None),
        ("agent", "", True, None),
        ("agent", "Nothing is left.", None, 1),
    ]
    first, second = document["steps"][2:4]
    assert first["tool_calls"] == [{"tool_call_id": "call_1", "function_name": "write", "arguments": {"path": "a"}}]
    assert first["observation"] == {"results": [{"source_call_id": "call_1", "content": "written"}]}
    assert second["reasoning_content"] == "It is there."
    assert document["agent"] == {"name": "toy", "version": "1.2", "model_name": "m", "tool_definitions": list(TOOLS)}


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
junk = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2))
functions = st.fixed_dictionaries({}, optional={"name": junk, "arguments": junk | st.just("{") | st.just("[1]")})
calls = st.lists(st.fixed_dictionaries({}, optional={"id": junk, "function": functions | junk}), max_size=2)
roles = st.sampled_from(["user", "assistant", "tool", "developer", "function"]) | junk
wild = st.fixed_dictionaries({"role": roles}, optional={"content": junk, "tool_calls": calls | junk, "tool_call_id": junk})


@settings(max_examples=80)
@given(st.lists(wild, min_size=1, max_size=3), wild)
def test_messages_of_any_form_are_a_document_or_a_reason(messages: list[dict[str, Any]], reply: dict[str, Any]) -> None:
    good = rollout([Exchange("c1", ASK, message("assistant", "One"))], id="good")
    odd = rollout([Exchange("c1", ASK, message("assistant", "One"))], id="odd")
    (turn,) = odd.trajectory.turns
    call = evolve(turn.call, messages=tuple(messages), reply=reply)
    odd = evolve(odd, session=evolve(odd.session, trajectory=evolve(odd.trajectory, turns=(evolve(turn, call=call),))))
    with run_of([odd, good]) as run:
        for to in ("atif", "sft", "openenv"):
            report = export(run, to)  # type: ignore[arg-type]
            assert report.rollouts + report.left_out.total() + len(report.damaged) == 2
        found = documents(run / "atif")
    for document in found.values():
        check(document)


def test_a_rollout_without_a_call_is_left_out() -> None:
    idle = rollout([], id="idle")
    with run_of([idle, rollout([Exchange("c1", ASK, {}, (), {"error": "HTTP 500"})], verdict=VERDICTS["unscorable"])]) as run:
        report = export(run, "atif")
        (document,) = documents(report.path).values()
    assert report.left_out == {"no model call": 1}
    assert (document["steps"][-1]["message"], document["steps"][-1]["extra"]["error"]) == ("", "HTTP 500")
