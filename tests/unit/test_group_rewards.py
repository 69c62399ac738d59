"""Rewards that compare the rollouts of a group: through the host, in a run, and in the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from longrein import api
from longrein.config import from_mapping
from longrein.model import Finding, Group, Outcome, Reward, Rollout, SessionResult, Trajectory, Verdict
from longrein.plugins import PluginHost
from longrein.reward import RewardFunction
from longrein.rollout.groups import group_line
from longrein.training import figures

PLUGIN = """
import longrein
from longrein.model import PublicTask, Reward, Task, TaskRef, Verdict
from longrein.reward import RewardFunction
from longrein.verifier import TaskSet, Verifier

class Ranked(RewardFunction):
    "Later samples are better."
    name = "ranked"
    def compute(self, rollout):
        return Reward(0.0, reason="alone")
    async def score_group(self, group, rewards):
        assert [r.sample for r in group.rollouts] == list(range(len(rewards)))
        return {r.id: Reward(float(r.sample), {"rank": float(r.sample)}, details={"place": r.sample}) for r in group.rollouts}

class One(TaskSet):
    name = "one"
    def tasks(self):
        yield Task("t", "d", PublicTask("Do it."), TaskRef("one", "t"), "fails")
    def hidden(self, task_id): return {}

class Fails(Verifier):
    name = "fails"
    def grade(self, hidden, workspace): return Verdict("failed", 0.0)

@longrein.hookimpl
def longrein_rewards(): return [Ranked]
@longrein.hookimpl
def longrein_tasksets(): return [One]
@longrein.hookimpl
def longrein_verifiers(): return [Fails]
"""
TURNED = """
import longrein
from longrein.model import Reward
@longrein.hookimpl
def longrein_score_group(rewards): return {i: Reward(-r.value) if r.value is not None else r for i, r in rewards.items()}
"""


class Relative(RewardFunction):
    """Answers a group with what it was made with, or raises it."""

    name = "relative"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def compute(self, rollout: Rollout) -> Reward:
        return Reward(0.0)

    def score_group(self, group: Group, rewards: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class LateRelative(Relative):
    """The same as a coroutine."""

    async def score_group(self, group: Group, rewards: Any) -> Any:
        return super().score_group(group, rewards)


def rollout(number: int, verdict: Verdict | None = None) -> Rollout:
    ended = SessionResult(f"s{number}", "nop", Outcome("completed"), Trajectory())
    return Rollout(f"r{number}", "g", "nop", "one", "t", "d", number, 0, ended, verdict or Verdict("failed", 0.0), reward=Reward(0.0))


GROUP = Group("g", "nop", "one", "t", (rollout(0), rollout(1), rollout(2, Verdict.unscorable("grader broke"))))
BEFORE = {"r0": Reward(0.0), "r1": Reward(0.0), "r2": Reward(None, reason="grader broke", decided_by="verdict")}
RANKED = {"r0": Reward(0.25, details={"place": 1}), "r1": Reward(0.75), "r2": Reward(None)}


@pytest.mark.parametrize("kind", [Relative, LateRelative])
async def test_the_configured_reward_scores_a_group(kind: type[Relative]) -> None:
    findings: list[Finding] = []
    rewards = await PluginHost.load().score_group(GROUP, BEFORE, kind(RANKED), findings)
    assert rewards == {
        "r0": Reward(0.25, decided_by="reward:relative", details={"place": 1}),
        "r1": Reward(0.75, decided_by="reward:relative"),
        "r2": BEFORE["r2"],
    }
    assert findings == []
    assert await PluginHost.load().score_group(GROUP, BEFORE, kind(None), findings) == BEFORE


async def test_a_hook_sees_what_the_reward_made_and_decides(tmp_path: Path) -> None:
    (tmp_path / "turned.py").write_text(TURNED)
    host = PluginHost.load(["./turned.py"], folder=tmp_path)
    rewards = await host.score_group(GROUP, BEFORE, Relative(RANKED), [])
    assert [(reward.value, reward.decided_by) for reward in rewards.values()] == [
        (-0.25, "plugin:turned.py"),
        (-0.75, "plugin:turned.py"),
        (None, "verdict"),
    ]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (OSError("judge is down"), "score_group raised OSError: judge is down (test_group_rewards.py:"),
        ({"r0": Reward(1.0)}, "score_group answered rewards without r1, r2"),
        ([1.0, 2.0, 3.0], "score_group answered [1.0, 2.0, 3.0]; it takes Mapping or None"),
        ({**RANKED, "r1": Reward(0.5, details={"x": {1}})}, "score_group answered for r1: a Reward whose details are no JSON: "),
        ({**RANKED, "r1": Reward(0.5, details={"x": float("nan")})}, "score_group answered for r1: a Reward whose details are no JSON: "),
    ],
)
async def test_a_reward_that_fails_leaves_its_group_without_rewards(answer: Any, message: str) -> None:
    findings: list[Finding] = []
    rewards = await PluginHost.load().score_group(GROUP, BEFORE, Relative(answer), findings)
    assert {(reward.value, reward.decided_by) for reward in rewards.values()} == {(None, "reward:relative")}
    assert all(reward.reason.startswith(f"group is unscorable: {message}") for reward in rewards.values())
    assert [finding.source for finding in findings] == ["reward:relative"]


def test_the_line_of_a_group_says_what_comparing_decided() -> None:
    first, *others = GROUP.rollouts
    found = evolve(first.session, findings=(Finding("reward:relative", "odd"),))
    scored = evolve(
        GROUP, rollouts=(evolve(first, session=found, reward=Reward(0.25, {"judge": 0.25}, "good", "x", {"place": 1})), *others)
    )
    line = json.loads(json.dumps(group_line(GROUP, scored)))
    assert line["rewards"] == {"r0": 0.25, "r1": 0.0, "r2": 0.0}
    assert line["compared"] == {
        "r0": {"value": 0.25, "parts": {"judge": 0.25}, "reason": "good", "decided_by": "x", "details": {"place": 1}}
    }
    assert line["findings"] == [{"source": "reward:relative", "message": "odd"}]


def test_numbers_among_the_details_become_metrics() -> None:
    reward = Reward(0.5, details={"agreement": 0.9, "calls": 2, "cached": True, "model": "m", "scores": [1.0]})
    values = figures.of_rollout(evolve(rollout(0), reward=reward), Trajectory())
    assert {key: value for key, value in values.items() if key.startswith("nop/reward/")} == {
        "nop/reward/agreement": (0.9, 1.0),
        "nop/reward/calls": (2.0, 1.0),
    }


@pytest.mark.parametrize("samples", [1, 3])
def test_a_run_compares_rollouts_of_two_samples_or_more(tmp_path: Path, samples: int) -> None:
    (tmp_path / "ranked.py").write_text(PLUGIN)
    host = PluginHost.load(["./ranked.py"], folder=tmp_path)
    config = from_mapping({"taskset": "one", "agents": {"nop": {}}, "reward": {"name": "ranked"}, "run": {"out": str(tmp_path / "run")}})
    result = api.run(config, samples=samples, host=host)
    final = [0.0, 1.0, 2.0] if samples == 3 else [0.0]
    assert sorted(rollout.reward.value or 0.0 for rollout in result.rollouts) == final
    assert result.summary["agents"]["nop"]["run"]["reward"] == sum(final) / len(final)
    groups = result.folder / "groups.jsonl"
    assert groups.exists() == (samples == 3)
    if samples == 3:
        line = json.loads(groups.read_text())
        assert list(line["rewards"].values()) == final
        assert line["compared"]["run.nop.t.2"]["details"] == {"place": 2}
