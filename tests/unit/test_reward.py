"""The default rewards, by tables, and how the host treats them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from longrein.model import (
    Action,
    ActionKind,
    Finding,
    Outcome,
    OutcomeKind,
    Reward,
    Rollout,
    SessionResult,
    Trajectory,
    Verdict,
)
from longrein.plugins import PluginHost
from longrein.reward import RewardFunction

PASSED, HALF, FAILED = Verdict("passed", 1.0), Verdict("failed", 0.5), Verdict("failed", 0.0)
UNSCORABLE = Verdict.unscorable("the grader broke")


@pytest.fixture(scope="module")
def host() -> PluginHost:
    return PluginHost.load()


def rollout(verdict: Verdict, kinds: str = "", outcome: OutcomeKind = "completed") -> Rollout:
    """Return a rollout whose actions are given by letters: r(un), e(dit), s(earch)."""
    words: dict[str, ActionKind] = {"r": "run", "e": "edit", "s": "search"}
    session = SessionResult("s", "aider", Outcome(outcome, "why"), Trajectory())
    return Rollout("r1", "g1", "aider", "practice", "t1", "digest", 0, 0, session, verdict, tuple(Action(words[k]) for k in kinds))


SHAPED = [
    # verdict, actions, outcome, reward
    (PASSED, "er", "completed", 1.0),
    (PASSED, "e", "completed", 0.9),
    (PASSED, "", "completed", 0.9),
    (PASSED, "er", "timeout", 0.0),
    (PASSED, "er", "budget_exceeded", 1.0),
    (HALF, "er", "completed", 0.0),
    (FAILED, "", "completed", -0.1),
    (PASSED, "r" * 20, "completed", 1.0),
    (PASSED, "r" * 23, "completed", 0.91),
    (FAILED, "s" * 90, "timeout", -0.6),
    (UNSCORABLE, "er", "completed", None),
]


@pytest.mark.parametrize(("verdict", "kinds", "outcome", "expected"), SHAPED)
def test_shaped(host: PluginHost, verdict: Verdict, kinds: str, outcome: OutcomeKind, expected: float | None) -> None:
    reward = host.reward("shaped").compute(rollout(verdict, kinds, outcome))
    assert reward.value == (None if expected is None else pytest.approx(expected, abs=1e-12))
    if expected is None:
        assert reward == Reward(None, reason="the grader broke")
    else:
        assert set(reward.parts) == {"passed", "no_run", "actions"}
        assert sum(reward.parts.values()) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("name", "verdict", "expected"),
    [
        ("binary", PASSED, 1.0),
        ("binary", HALF, 0.0),
        ("binary", FAILED, 0.0),
        ("binary", UNSCORABLE, None),
        ("fraction", PASSED, 1.0),
        ("fraction", HALF, 0.5),
        ("fraction", FAILED, 0.0),
        ("fraction", UNSCORABLE, None),
    ],
)
def test_binary_and_fraction(host: PluginHost, name: str, verdict: Verdict, expected: float | None) -> None:
    reward = host.reward(name).compute(rollout(verdict, outcome="timeout"))
    assert reward.value == expected
    assert (not reward.parts) == (expected is None)


class Given(RewardFunction):
    """Answers what it was given, or raises it."""

    name = "given"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def compute(self, rollout: Rollout) -> Reward:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[no-any-return]


class Later(Given):
    """The same as a coroutine function."""

    async def compute(self, rollout: Rollout) -> Reward:  # type: ignore[override]
        return super().compute(rollout)


@pytest.mark.parametrize("kind", [Given, Later])
async def test_the_host_writes_who_decided(host: PluginHost, kind: type[Given]) -> None:
    findings: list[Finding] = []
    reward = await host.compute_reward(rollout(PASSED), kind(Reward(1, {"a": 1.0}, decided_by="someone else")), findings)
    assert (reward, findings) == (Reward(1.0, {"a": 1.0}, decided_by="reward:given"), [])
    assert isinstance(reward.value, float)


@pytest.mark.parametrize("kind", [Given, Later])
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Reward(math.nan), "compute answered a Reward with value nan; it takes a finite number"),
        (Reward(math.inf), "compute answered a Reward with value inf; it takes a finite number"),
        (Reward(True), "compute answered a Reward with value True; it takes a finite number"),
        (Reward(1.0, {"speed": math.nan}), "compute answered a Reward with speed nan; it takes a finite number"),
        (0.5, "compute answered 0.5; it takes Reward or None"),
        (ValueError("no idea"), "compute raised ValueError: no idea (test_reward.py:"),
        (None, "compute answered None"),
    ],
)
async def test_a_bad_reward_is_none_with_the_reason_and_never_zero(host: PluginHost, kind: type[Given], answer: Any, reason: str) -> None:
    findings: list[Finding] = []
    reward = await host.compute_reward(rollout(PASSED), kind(answer), findings)
    assert reward.value is None
    assert reason in reward.reason
    assert reward.decided_by == "reward:given"
    assert [finding.source for finding in findings] == ([] if answer is None else ["reward:given"])


@pytest.mark.parametrize("bad", [rollout(UNSCORABLE), rollout(PASSED, outcome="llm_error")])
async def test_an_unscorable_rollout_has_no_reward_whatever_the_function_says(host: PluginHost, bad: Rollout) -> None:
    reward = await host.compute_reward(bad, Given(Reward(1.0)), [])
    assert reward.value is None
    assert reward.reason in ("the grader broke", "llm_error: why")
    assert reward.decided_by == "verdict"


async def test_a_stop_iteration_inside_a_thread_does_not_hang(host: PluginHost) -> None:
    findings: list[Finding] = []
    assert (await host.compute_reward(rollout(PASSED), Given(StopIteration()), findings)).value is None
    assert "compute raised StopIteration" in findings[0].message
