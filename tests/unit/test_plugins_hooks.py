"""Every hook, called through the host by plugins that behave and by plugins that do not."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from longrein.agent import AgentAdapter, LaunchPlan, Session
from longrein.errors import PluginError, TaskError
from longrein.model import (
    Finding,
    Group,
    ModelCall,
    Outcome,
    PublicTask,
    Reward,
    Rollout,
    SessionResult,
    Trajectory,
    Turn,
    TurnLabel,
    Verdict,
)
from longrein.plugins import PluginHost
from longrein.reward.builtin import Binary

Load = Callable[..., PluginHost]
HEAD = """
import asyncio, math, sys, threading
from longrein import hookimpl
from longrein.agent import AgentAdapter, LaunchPlan
from longrein.model import Reward, TurnLabel
from longrein.reward import RewardFunction
from longrein.sandbox import SupervisorSandbox
from longrein.verifier import TaskSet, Verifier
"""
TRAIN, AUX = TurnLabel("train", "structure says so"), TurnLabel("aux", "a title")


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that writes plugins a.py, b.py, ... and loads them in that order."""

    def write(*texts: str) -> PluginHost:
        names = []
        for letter, text in zip("abc", texts, strict=False):
            (tmp_path / f"{letter}.py").write_text(HEAD + textwrap.dedent(text), encoding="utf-8")
            names.append(f"./{letter}.py")
        return PluginHost.load(names, folder=tmp_path)

    return write


class Scripted(AgentAdapter):
    """Plans and labels what it was given, or raises it."""

    name = "scripted"

    def __init__(self, *, plan: Any = None, label: Any = None) -> None:
        self.plan, self.label = plan, label

    def launch(self, session: Session) -> LaunchPlan:
        if isinstance(self.plan, Exception):
            raise self.plan
        return self.plan  # type: ignore[no-any-return]

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        if isinstance(self.label, Exception):
            raise self.label
        return self.label  # type: ignore[no-any-return]


def session(**changes: Any) -> Session:
    place = {"workdir": PurePosixPath("/w"), "home": PurePosixPath("/h"), "python": PurePosixPath("/usr/bin/python3")}
    return Session(**{"task": PublicTask("Do it."), "model": "m", "base_url": "http://127.0.0.1:1", "api_key": "k", **place, **changes})


def turn(label: TurnLabel = TRAIN) -> Turn:
    call = ModelCall("c0", 0, None, context_ids=[1, 2], prompt_len=2, sampled_ids=[3], logprobs=[-0.5])
    return Turn(call, label, "structure")


def rollout(number: int = 0, verdict: Verdict | None = None) -> Rollout:
    ended = SessionResult(f"s{number}", "scripted", Outcome("completed"), Trajectory((turn(),)))
    return Rollout(f"r{number}", "g", "scripted", "practice", "t", "digest", number, 0, ended, verdict or Verdict("passed", 1.0))


def classify(host: PluginHost, proposal: TurnLabel = TRAIN, label: Any = None) -> tuple[TurnLabel, str, list[Finding]]:
    findings: list[Finding] = []
    one = turn(proposal)
    decided, by = host.classify(Scripted(label=label), one, Trajectory((one,)), proposal, findings)
    return decided, by, findings


# Registries


def test_longrein_agents_verifiers_tasksets_rewards_sandboxes(load: Load) -> None:
    host = load("""
        class A(AgentAdapter):
            name = "a-agent"
            def launch(self, session): return LaunchPlan(["true"])
        class V(Verifier):
            name = "a-verifier"
            def grade(self, hidden, workspace): ...
        class T(TaskSet):
            name = "a-taskset"
            def tasks(self): return iter(())
            def hidden(self, task_id): ...
        class R(RewardFunction):
            name = "a-reward"
            def compute(self, rollout): ...
        class S(SupervisorSandbox):
            name = "a-sandbox"
        @hookimpl
        def longrein_agents(): return [A]
        @hookimpl
        def longrein_verifiers(): return (V,)
        @hookimpl
        def longrein_tasksets(): return [T]
        @hookimpl
        def longrein_rewards(): return [R]
        @hookimpl
        def longrein_sandboxes(): return [S]
    """)
    makers = {"agent": host.agent, "verifier": host.verifier, "taskset": host.taskset, "reward": host.reward, "sandbox": host.sandbox}
    for kind, make in makers.items():
        assert f"a-{kind}" in host.names(kind)
        assert make(f"a-{kind}").name == f"a-{kind}"


# longrein_launch_agent


def test_longrein_launch_agent_takes_the_first_answer_in_the_order_of_use(load: Load) -> None:
    answer = "@hookimpl\ndef longrein_launch_agent(agent, session): return {}"
    host = load(answer.format("None"), answer.format("LaunchPlan(['b', agent.name, session.model])"), answer.format("LaunchPlan(['c'])"))
    findings: list[Finding] = []
    assert host.launch(Scripted(plan=LaunchPlan(["own"])), session(), findings).argv == ["b", "scripted", "m"]
    assert findings == []


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 1 / 0", "longrein_launch_agent raised ZeroDivisionError: division by zero (a.py:11)"),
        ("sys.exit(1)", "longrein_launch_agent raised SystemExit: 1 (a.py:11)"),
        ("return ['opencode']", "longrein_launch_agent answered ['opencode']; it takes LaunchPlan or None"),
        ("return LaunchPlan('opencode run')", "longrein_launch_agent answered a LaunchPlan with argv 'opencode run'"),
        ("return LaunchPlan([])", "longrein_launch_agent answered a LaunchPlan with argv []"),
        ("return LaunchPlan(['a'], env={'N': 1})", "longrein_launch_agent answered a LaunchPlan whose env are not text to text"),
        ("return LaunchPlan(['a'], files={'f': b''})", "longrein_launch_agent answered a LaunchPlan whose files are not text to text"),
    ],
)
def test_a_bad_launch_override_is_a_finding_and_the_adapter_decides(load: Load, body: str, message: str) -> None:
    host = load(f"@hookimpl\ndef longrein_launch_agent(session):\n    {body}")
    findings: list[Finding] = []
    assert host.launch(Scripted(plan=LaunchPlan(["own"])), session(), findings).argv == ["own"]
    assert [finding.source for finding in findings] == ["plugin:a.py"]
    assert findings[0].message.startswith(message)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (OSError("gone"), r"agent 'scripted': launch raised OSError: gone \(test_plugins_hooks\.py:\d+\)"),
        (None, "agent 'scripted': launch answered None; it takes a LaunchPlan"),
        (LaunchPlan([]), r"agent 'scripted': launch answered a LaunchPlan with argv \[\]"),
    ],
)
def test_an_adapter_without_a_sound_plan_is_named(load: Load, plan: Any, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        load().launch(Scripted(plan=plan), session(), [])


# longrein_classify_turn


def test_the_adapter_replaces_the_structural_proposal(load: Load) -> None:
    assert classify(load()) == (TRAIN, "structure", [])
    assert classify(load(), label=AUX) == (AUX, "agent:scripted", [])


def test_longrein_classify_turn_sees_the_proposal_and_the_first_answer_decides(load: Load) -> None:
    host = load(
        "@hookimpl\ndef longrein_classify_turn(turn): return None",
        """
        @hookimpl
        def longrein_classify_turn(turn, trajectory, proposal, agent):
            return TurnLabel("context", f"{agent.name}, {proposal.label}, {turn.label.label}, {len(trajectory)}")
        """,
        "@hookimpl\ndef longrein_classify_turn(): return TurnLabel('discarded', 'never asked')",
    )
    assert classify(host, label=AUX) == (TurnLabel("context", "scripted, aux, train, 1"), "plugin:b.py", [])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('x')", "longrein_classify_turn raised KeyError: 'x' (a.py:11)"),
        ("return 'aux'", "longrein_classify_turn answered 'aux'; it takes TurnLabel or None"),
        ("return TurnLabel('title', 'a title')", "longrein_classify_turn raised ValueError: unknown label 'title'; known: train"),
        ("return TurnLabel('invalid', 'I say so')", "longrein_classify_turn answered 'invalid', which only capture decides"),
    ],
)
def test_a_bad_classifier_is_a_finding_and_the_proposal_stands(load: Load, body: str, message: str) -> None:
    host = load(f"@hookimpl\ndef longrein_classify_turn():\n    {body}")
    label, by, findings = classify(host)
    assert (label, by) == (TRAIN, "structure")
    assert [finding.source for finding in findings] == ["plugin:a.py"]
    assert findings[0].message.startswith(message)


def test_an_async_classifier_is_a_finding(load: Load) -> None:
    host = load("@hookimpl\nasync def longrein_classify_turn(): return TurnLabel('aux', 'late')")
    assert classify(host) == (
        TRAIN,
        "structure",
        [Finding("plugin:a.py", "longrein_classify_turn answered with a coroutine; this hook must not be async")],
    )


@pytest.mark.parametrize("label", [ValueError("no"), "aux", TurnLabel("invalid", "I say so")])
def test_a_bad_adapter_label_is_a_finding_and_the_structure_stands(load: Load, label: Any) -> None:
    decided, by, findings = classify(load(), label=label)
    assert (decided, by) == (TRAIN, "structure")
    assert [finding.source for finding in findings] == ["agent:scripted"]


def test_nobody_is_asked_about_an_invalid_turn(load: Load) -> None:
    host = load("@hookimpl\ndef longrein_classify_turn(): return TurnLabel('train', 'mine')")
    invalid = TurnLabel("invalid", "30 tokens reported, 6 ids")
    assert classify(host, invalid, label=AUX) == (invalid, "capture", [])


def test_the_same_fault_at_many_turns_is_one_finding(load: Load) -> None:
    host = load("@hookimpl\ndef longrein_classify_turn(): return 1 / 0")
    findings: list[Finding] = []
    for _ in range(50):
        host.classify(Scripted(), turn(), Trajectory((turn(),)), TRAIN, findings)
    assert len(findings) == 1


# longrein_compute_reward


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_longrein_compute_reward_decides_before_the_configured_reward(load: Load, kind: str) -> None:
    host = load(
        f"@hookimpl\n{kind} longrein_compute_reward(): return None",
        f"@hookimpl\n{kind} longrein_compute_reward(rollout): return Reward(2, {{'bonus': 2.0}}, decided_by='me')",
    )
    findings: list[Finding] = []
    assert await host.compute_reward(rollout(), Binary(), findings) == Reward(2.0, {"bonus": 2.0}, decided_by="plugin:b.py")
    assert findings == []


async def test_plain_hooks_run_in_a_thread_and_async_ones_on_the_loop(load: Load) -> None:
    values = []
    for kind in ("def", "async def"):
        host = load(f"""
            @hookimpl
            {kind} longrein_compute_reward():
                return Reward(1.0 if threading.current_thread() is threading.main_thread() else 2.0)
        """)
        values.append((await host.compute_reward(rollout(), Binary(), [])).value)
    assert values == [2.0, 1.0]


@pytest.mark.parametrize("kind", ["def", "async def"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise OSError('judge is down')", "longrein_compute_reward raised OSError: judge is down (a.py:11)"),
        ("sys.exit()", "longrein_compute_reward raised SystemExit: "),
        ("return Reward(math.nan)", "longrein_compute_reward answered a Reward with value nan; it takes a finite number"),
        ("return 1.0", "longrein_compute_reward answered 1.0; it takes Reward or None"),
    ],
)
async def test_a_bad_reward_override_is_a_finding_and_the_default_decides(load: Load, kind: str, body: str, message: str) -> None:
    host = load(f"@hookimpl\n{kind} longrein_compute_reward():\n    {body}")
    findings: list[Finding] = []
    assert await host.compute_reward(rollout(), Binary(), findings) == Reward(1.0, {"passed": 1.0}, decided_by="reward:binary")
    assert [finding.source for finding in findings] == ["plugin:a.py"]
    assert findings[0].message.startswith(message)


# longrein_score_group


GROUP = Group("g", "scripted", "practice", "t", (rollout(0), rollout(1), rollout(2, Verdict.unscorable("grader broke"))))
REWARDS: Mapping[str, Reward] = {"r0": Reward(1.0), "r1": Reward(0.0), "r2": Reward(None, reason="grader broke", decided_by="verdict")}


@pytest.mark.parametrize("kind", ["def", "async def"])
async def test_longrein_score_group_answers_for_every_rollout(load: Load, kind: str) -> None:
    host = load(
        f"@hookimpl\n{kind} longrein_score_group(group): return None",
        f"""
        @hookimpl
        {kind} longrein_score_group(group, rewards):
            scored = [r for r in rewards.values() if r.value is not None]
            mean = sum(r.value for r in scored) / len(scored)
            return {{i: r if r.value is None else Reward(r.value - mean, {{"above": r.value - mean}}) for i, r in rewards.items()}}
        """,
    )
    findings: list[Finding] = []
    assert await host.score_group(GROUP, REWARDS, Binary(), findings) == {
        "r0": Reward(0.5, {"above": 0.5}, decided_by="plugin:b.py"),
        "r1": Reward(-0.5, {"above": -0.5}, decided_by="plugin:b.py"),
        "r2": REWARDS["r2"],
    }
    assert findings == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("{'r0': Reward(1.0), 'r2': Reward(None)}", "rewards without r1"),
        ("{**rewards, 'r9': Reward(1.0)}", "rewards with unknown r9"),
        ("{}", "rewards without r0, r1, r2"),
        ("{**rewards, 'r1': Reward(math.nan)}", "for r1: a Reward with value nan; it takes a finite number"),
        ("{**rewards, 'r1': 0.5}", "for r1: 0.5; it takes Reward or None"),
        ("{**rewards, 'r1': None}", "for r1: None; Reward(None, reason=...) says that a rollout has no reward"),
    ],
)
async def test_an_answer_that_does_not_cover_the_group_makes_it_unscorable(load: Load, answer: str, message: str) -> None:
    host = load(f"@hookimpl\ndef longrein_score_group(rewards): return {answer}")
    findings: list[Finding] = []
    rewards = await host.score_group(GROUP, REWARDS, Binary(), findings)
    assert set(rewards) == {"r0", "r1", "r2"}
    assert {(reward.value, reward.decided_by) for reward in rewards.values()} == {(None, "plugin:a.py")}
    assert {reward.reason for reward in rewards.values()} == {f"group is unscorable: longrein_score_group answered {message}"}
    assert findings == [Finding("plugin:a.py", f"longrein_score_group answered {message}")]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise ValueError('no')", "raised ValueError: no"),
        ("return [1.0, 2.0, 3.0]", "answered [1.0, 2.0, 3.0]; it takes Mapping or None"),
        ("rewards['r0'] = Reward(9.0)", "raised TypeError: 'mappingproxy' object does not support item assignment"),
    ],
)
async def test_a_group_hook_that_fails_changes_nothing(load: Load, body: str, message: str) -> None:
    host = load(f"@hookimpl\ndef longrein_score_group(rewards):\n    {body}")
    findings: list[Finding] = []
    assert await host.score_group(GROUP, REWARDS, Binary(), findings) == REWARDS
    assert findings[0].message.startswith(f"longrein_score_group {message}")


async def test_an_unscorable_rollout_gets_no_number_from_its_group(load: Load) -> None:
    host = load("@hookimpl\ndef longrein_score_group(rewards): return {i: Reward(0.0) for i in rewards}")
    findings: list[Finding] = []
    rewards = await host.score_group(GROUP, REWARDS, Binary(), findings)
    assert [rewards[i].value for i in ("r0", "r1", "r2")] == [0.0, 0.0, None]
    assert findings == [Finding("plugin:a.py", "longrein_score_group answered 0.0 for r2, which is unscorable (grader broke)")]


# longrein_rollout_finished


async def test_longrein_rollout_finished_tells_every_observer(load: Load, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    write = f"\n    with open({str(seen)!r}, 'a') as out: out.write(rollout.id)"
    host = load(
        f"@hookimpl\ndef longrein_rollout_finished(rollout): {write}",
        "@hookimpl\ndef longrein_rollout_finished(rollout): raise OSError('disk full')",
        f"@hookimpl\nasync def longrein_rollout_finished(rollout): {write}\n    return 'ignored'",
    )
    findings: list[Finding] = []
    await host.rollout_finished(rollout(), findings)
    assert seen.read_text(encoding="utf-8") == "r0r0"
    assert [finding.source for finding in findings] == ["plugin:b.py"]
    assert findings[0].message.startswith("longrein_rollout_finished raised OSError: disk full")


# The agents that need no model


def test_nop_starts_and_leaves(load: Load) -> None:
    nop = load().agent("nop", {})
    assert nop.launch(session(solution={"solution.py": "print(1)"})) == LaunchPlan(["/usr/bin/python3", "-c", "pass"])
    assert (nop.capabilities.calls_model, nop.capabilities.needs_solution, nop.toolchain) == (False, False, None)


def test_oracle_hands_in_the_solution(load: Load) -> None:
    oracle = load().agent("oracle", {})
    assert oracle.launch(session(solution={"solution.py": "print(1)"})).files == {"solution.py": "print(1)"}
    assert (oracle.capabilities.calls_model, oracle.capabilities.needs_solution) == (False, True)
    with pytest.raises(TaskError, match="no known solution"):
        load().launch(oracle, session(), [])
