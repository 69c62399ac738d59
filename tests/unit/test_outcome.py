"""Outcomes: decided from model calls and the process."""

from __future__ import annotations

import pytest

from longrein.model import GRADED, ModelCall
from longrein.rollout.outcome import Ending, decide_outcome


def call(index: int, **changes: object) -> ModelCall:
    values = {
        "id": f"c{index}",
        "index": index,
        "parent_id": None,
        "context_ids": [1],
        "prompt_len": 1,
        "sampled_ids": [2],
        "logprobs": [-1.0],
    }
    return ModelCall(**(values | changes))  # type: ignore[arg-type]


REPLY, ERROR = call(0), call(1, error="HTTP 500", sampled_ids=[], logprobs=[])
CANCELLED = call(1, error="cancelled: the session was closed", sampled_ids=[], logprobs=[], delivered=False)
BAD = call(0, problem="engine reported 30 tokens and returned 6")


@pytest.mark.parametrize(
    ("kind", "graded", "end"),
    [
        ("completed", True, Ending("exit", 0, [REPLY], True)),
        ("agent_error", True, Ending("exit", 3, [REPLY], True)),
        ("timeout", True, Ending("timeout", None, [REPLY], True)),
        ("stalled", True, Ending("stalled", None, [REPLY], True)),
        ("budget_exceeded", True, Ending("exit", 0, [REPLY], True, budget_stop="40 calls")),
        ("budget_exceeded", True, Ending("budget", None, [REPLY], True, budget_stop="40 calls")),
        ("context_overflow", True, Ending("exit", 0, [REPLY, ERROR], True, context_overflow=True)),
        ("llm_error", False, Ending("exit", 0, [REPLY, ERROR], True)),
        ("llm_error", False, Ending("exit", 0, [ERROR], True)),
        ("llm_error", False, Ending("reply_timeout", None, [REPLY], True)),
        ("no_model_calls", False, Ending("exit", 0, [], True)),
        ("agent_error", False, Ending("exit", 3, [], True)),
        ("stalled", False, Ending("stalled", None, [], True)),
        ("timeout", False, Ending("timeout", None, [], True)),
        ("completed", True, Ending("exit", 0, [], False)),
        ("capture_invalid", False, Ending("exit", 0, [BAD], True)),
        ("completed", True, Ending("exit", 0, [BAD], True, needs_tokens=False)),
        ("completed", True, Ending("exit", 0, [BAD, call(1)], True)),
        ("completed", True, Ending("exit", 0, [ERROR, call(2)], True)),
        ("timeout", True, Ending("timeout", None, [REPLY, CANCELLED], True)),
        ("timeout", False, Ending("timeout", None, [CANCELLED], True)),
        ("sandbox_error", False, Ending("killed", None, [REPLY], True)),
    ],
)
def test_outcome(kind: str, graded: bool, end: Ending) -> None:
    outcome = decide_outcome(end)
    assert (outcome.kind, outcome.graded) == (kind, graded), outcome
    assert outcome.reason or kind == "completed"


def test_three_ways_of_doing_nothing_are_three_outcomes_and_none_is_graded() -> None:
    ways = [Ending("exit", 0, [], True), Ending("exit", 3, [], True), Ending("stalled", None, [], True)]
    outcomes = [decide_outcome(way) for way in ways]
    assert len({outcome.kind for outcome in outcomes}) == 3
    assert not any(outcome.graded for outcome in outcomes)


def test_agent_error_names_the_last_line_of_stderr() -> None:
    assert "no such model" in decide_outcome(Ending("exit", 1, [REPLY], True, stderr_tail="trace\nno such model\n")).reason


def test_unscorable_kinds_are_not_graded() -> None:
    assert {"llm_error", "no_model_calls", "sandbox_error", "verifier_error", "capture_invalid", "environment_error"}.isdisjoint(GRADED)
