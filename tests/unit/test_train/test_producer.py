"""The producer with an engine that answers at once: order, evaluations, weighting, and the end when nothing can be trained."""

import asyncio
import contextlib
import json
import os
import random
import re
from collections import Counter

import pytest
from attrs import asdict

from longrein.config import from_mapping
from longrein.errors import RunStopped
from longrein.model import (
    ModelCall,
    Outcome,
    PublicTask,
    Reward,
    Rollout,
    SessionResult,
    Task,
    TaskRef,
    Trajectory,
    Turn,
    TurnLabel,
    Verdict,
)
from longrein.rollout.record import RunRecorder
from longrein.training.messages import EvalDone, GroupDone, Metrics
from longrein.training.mixture import Mixture, open_positions
from longrein.training.producer import Place, Producer
from longrein.training.schedule import LookAhead

START = Place()


class QuickEngine:
    """Rollouts of one call whose number of tokens and reward the test chooses."""

    def __init__(self, reward, n_tokens=lambda spec: 4, gates=()):
        self.version, self.reward, self.n_tokens, self.gates = 0, reward, n_tokens, dict(gates)
        self.specs, self.under_way = [], 0

    async def rollout(self, spec, sampled):
        self.specs.append(spec)
        await asyncio.sleep(0)
        if (spec.phase, spec.sample) in self.gates:
            await self.gates[spec.phase, spec.sample].wait()
        sampled()
        value, n = self.reward(spec), self.n_tokens(spec)
        call = ModelCall("c0", 0, None, [1, 2], 2, [3] * n, [-1.0] * n, version_first=self.version, version_last=self.version)
        turn = Turn(call, TurnLabel("train", "own"), "structure")
        verdict = Verdict.unscorable("no") if value is None else Verdict("passed" if value == 1 else "failed", min(1.0, max(0.0, value)))
        return Rollout(
            spec.id,
            spec.group_id,
            spec.agent,
            spec.task.taskset,
            spec.task.id,
            spec.task.digest,
            spec.sample,
            spec.seed,
            phase=spec.phase,
            session=SessionResult(spec.id, spec.agent, Outcome("completed"), Trajectory((turn,))),
            verdict=verdict,
            reward=Reward(value, reason="" if value is not None else "the judge is down"),
        )

    async def score_group(self, group):
        return group


def task(name, taskset):
    return Task(name, f"d-{name}", PublicTask("p"), TaskRef(taskset, name), "v")


def make(tmp_path, engine, *, steps=3, max_staleness=2, agents=None, tasksets=("set",), place=START, sessions=2, **train):
    agents = agents or {"a": 1.0, "b": 1.0}
    config = from_mapping(
        {
            "tasksets": dict.fromkeys(tasksets, "set"),
            "agents": {name: {} for name in agents},
            "limits": {"sessions": sessions},
            "train": {"group_size": 2, "rows_per_step": 4, **train},
            "eval": {"taskset": "set", "samples": 2},
        }
    )
    tasks = [task(f"{name}{i}", name) for name in tasksets for i in range(3)]
    sent = []
    ahead = LookAhead(rows_per_step=4, max_staleness=max_staleness, first_version=1, steps=steps, version=1)
    producer = Producer(
        config,
        engine,
        agents=agents,
        tasks=tasks,
        eval_tasks=[task("eval", "set")],
        place=place,
        number=0,
        look_ahead=ahead,
        token_budget=6,
        recorder=RunRecorder(tmp_path / "run"),
        send=sent.append,
        traces=False,
    )
    return producer, sent


@contextlib.asynccontextmanager
async def running(producer):
    task = asyncio.create_task(producer.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


def by_sample(spec):
    return float(spec.sample)


async def test_a_slow_grader_stops_sampling_when_four_rollouts_a_core_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    grades = asyncio.Queue()

    class SlowGrader(QuickEngine):
        async def rollout(self, spec, sampled):
            rollout = await super().rollout(spec, sampled)
            await grades.get()
            return rollout

    engine = SlowGrader(by_sample)
    producer, _ = make(tmp_path, engine, steps=9, max_staleness=9, sessions=1)
    async with running(producer):
        for n_graded in range(6):
            await until(lambda n=n_graded: len(engine.specs) == 4 + n)
            for _ in range(50):
                await asyncio.sleep(0)
            assert len(engine.specs) == 4 + n_graded
            grades.put_nowait(None)


async def test_groups_come_in_order_and_stop_at_the_look_ahead(tmp_path):
    engine = QuickEngine(by_sample)
    producer, sent = make(tmp_path, engine, steps=9, max_staleness=1)

    def groups():
        return [message for message in sent if isinstance(message, GroupDone)]

    async with running(producer):
        await until(lambda: len(groups()) == 4)  # (1 + 1) steps of 4 rows, 2 rows a group
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(groups()) == 4
        producer.set_version(2)
        await until(lambda: len(groups()) == 6)
        producer.rows_dropped(2)
        await until(lambda: len(groups()) == 7)
    assert [spec.agent for spec in engine.specs[::2]] == ["a", "b", "a", "b", "a", "b", "a"]
    assert {row.row.version for message in groups()[4:] for row in message.rows} == {2}
    assert len({spec.id for spec in engine.specs}) == len({(spec.task.id, spec.agent, spec.seed) for spec in engine.specs}) == 14


async def test_no_more_is_made_than_the_steps_need(tmp_path):
    producer, sent = make(tmp_path, QuickEngine(by_sample), steps=1, max_staleness=4)
    async with running(producer):
        await until(lambda: sum(isinstance(message, GroupDone) for message in sent) == 2)
        for _ in range(50):
            await asyncio.sleep(0)
    assert sum(isinstance(message, GroupDone) for message in sent) == 2


async def test_no_training_session_starts_during_an_evaluation(tmp_path):
    training, last = asyncio.Event(), asyncio.Event()
    engine = QuickEngine(by_sample, gates={("train", 0): training, ("train", 1): training, ("eval:0", 1): last})
    producer, sent = make(tmp_path, engine, sessions=4)
    async with running(producer):
        await until(lambda: len(engine.specs) == 4)  # every session is a training session
        producer.evaluate("eval:0")
        training.set()
        for _ in range(100):  # two sessions are free while two evaluations are under way
            await asyncio.sleep(0.001)
        phases = [spec.phase for spec in engine.specs]
        assert phases == ["train"] * 4 + ["eval:0"] * 4
        last.set()
        await until(lambda: any(isinstance(message, EvalDone) for message in sent))
        await until(lambda: len(engine.specs) > 8)
        producer.evaluate("eval:2")
        await until(lambda: sum(isinstance(message, EvalDone) for message in sent) == 2)
    done = [message for message in sent if isinstance(message, EvalDone)]
    assert [(d.phase, len(d.cells)) for d in done] == [("eval:0", 4), ("eval:2", 4)]
    cells = [{(s.task.id, s.agent, s.sample, s.seed) for s in engine.specs if s.phase == d.phase} for d in done]
    assert cells[0] == cells[1], "same tasks, samples and seeds before and after"


@pytest.mark.parametrize(
    ("reward", "n", "why"),
    [
        (lambda spec: 0.5, 4, "40 with all rewards equal); groups.jsonl"),
        (lambda spec: None, 4, "40 with fewer than two rollouts scored); the last: the judge is down; groups.jsonl"),
        (lambda spec: [1.0, None][spec.sample], 4, "40 with fewer than two rollouts scored); the last: the judge is down; groups.jsonl"),
        (by_sample, 9, "40 with no trained token); groups.jsonl"),
    ],
)
async def test_nothing_trainable_ends_the_run_with_the_reason(tmp_path, reward, n, why):
    producer, sent = make(tmp_path, QuickEngine(reward, n_tokens=lambda spec: n))
    counts, _, rest = why.partition(")")
    parts = r"; \d+ of [ab]/set, \d+ of [ab]/set\)"
    said = rf"nothing to train on: 40 groups in a row gave no training row \({re.escape(counts)}{parts}{re.escape(rest)}"
    with pytest.raises(RunStopped, match=said):
        await producer.run()
    assert not [message for message in sent if isinstance(message, GroupDone)]


async def test_rates_count_what_was_skipped_too(tmp_path):
    """One group of (0, 1) and one of (1, 1), skipped and replaced: the pass rate is 3 of 4."""
    engine = QuickEngine(lambda spec: 1.0 if spec.group_id == "g000001" else float(spec.sample))
    producer, sent = make(tmp_path, engine, steps=1)
    async with running(producer):
        await until(lambda: sum(isinstance(message, GroupDone) for message in sent) >= 2)
    pairs = [message.values.get(f"{agent}/pass_rate") for message in sent if isinstance(message, Metrics) for agent in "ab"]
    first_four = [pair for pair in pairs if pair is not None][:4]
    assert [sum(part) for part in zip(*first_four, strict=True)] == [3.0, 4.0]
    figures = [message.values for message in sent if isinstance(message, Metrics)]
    skipped = [values["groups/skipped_no_variance"] for values in figures if "groups/trained" in values]
    assert skipped[:2] == [(0.0, 1.0), (1.0, 1.0)]


@pytest.mark.parametrize(("weighting", "sizes"), [("token", (1.0, 1.0)), ("rollout", (2.0, 2 / 3))])
async def test_weighting_changes_advantages_only(tmp_path, weighting, sizes):
    producer, sent = make(tmp_path, QuickEngine(by_sample, n_tokens=lambda spec: [1, 3][spec.sample]), steps=1, weighting=weighting)
    async with running(producer):
        await until(lambda: any(isinstance(message, GroupDone) for message in sent))
    rows = next(message for message in sent if isinstance(message, GroupDone)).rows
    assert [row.advantage for row in rows] == pytest.approx([-sizes[0], sizes[1]], abs=1e-6)
    assert [row.row.n_trained for row in rows] == [1, 3]


def groups(sent):
    return [message for message in sent if isinstance(message, GroupDone)]


def lines(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run" / "groups.jsonl").read_text().splitlines()]


def total(sent, key):
    return sum(message.values.get(key, 0) for message in sent if isinstance(message, Metrics))


async def test_what_is_trained_matches_the_weights_whatever_is_skipped_and_both_counts_are_metrics(tmp_path):
    """Every second group of b is skipped, sessions take their time, and the order in which groups leave is the mixture all the same."""
    agents, draw, skipped = {"a": 3.0, "b": 1.0}, random.Random(1), Counter()

    def reward(spec):
        if spec.agent == "b" and int(spec.group_id[1:]) % 2:
            skipped[spec.group_id] += 1
            return 0.0
        return float(spec.sample)

    class SlowEngine(QuickEngine):
        async def rollout(self, spec, sampled):
            for _ in range(draw.randrange(20)):
                await asyncio.sleep(0)
            return await super().rollout(spec, sampled)

    sets = {"easy": 1.0, "hard": 2.0}
    producer, sent = make(
        tmp_path,
        SlowEngine(reward),
        steps=30,
        max_staleness=30,
        agents=agents,
        tasksets=tuple(sets),
        mixture={"tasksets": sets},
        sessions=9,
    )
    async with running(producer):
        await until(lambda: len(groups(sent)) == 60)
    made, mixture = {line["number"]: line for line in lines(tmp_path)}, Mixture(agents, sets)
    trained = [(made[group.number]["agent"], made[group.number]["taskset"]) for group in groups(sent)]
    assert trained == [(part.agent, part.taskset) for part in map(mixture.at, range(60))]
    for start in range(41):
        part = trained[start : start + 20]
        assert abs(sum(agent == "a" for agent, _ in part) - 15) <= 2
        assert abs(sum(taskset == "hard" for _, taskset in part) - 40 / 3) <= 2
    assert [group.position for group in groups(sent)] != list(range(60)), "groups of one part changed positions"
    replaced = {line["position"]: line for line in made.values() if line["skipped"]}
    assert replaced
    for line in made.values():
        if line["position"] in replaced:
            assert (line["agent"], line["taskset"]) == ("b", replaced[line["position"]]["taskset"])
    n_trained = {part: total(sent, f"mixture/{part}/trained_total") for part in mixture.parts}
    assert sum(n_trained.values()) == sum(line["skipped"] is None for line in made.values())
    assert sum(total(sent, f"mixture/b/{name}/replaced_total") for name in sets) == len(skipped)
    assert sum(total(sent, f"mixture/a/{name}/replaced_total") for name in sets) == 0


async def test_a_replacement_has_another_task_and_the_look_ahead_counts_it_once(tmp_path):
    engine = QuickEngine(lambda spec: 0.5 if spec.group_id == "g000000" else float(spec.sample))
    producer, sent = make(tmp_path, engine, steps=1)
    async with running(producer):
        await until(lambda: len(groups(sent)) == 2)
        for _ in range(50):
            await asyncio.sleep(0)
    by_number = {line["number"]: line for line in lines(tmp_path)}
    assert {number: (line["position"], line["agent"]) for number, line in by_number.items()} == {0: (0, "a"), 1: (1, "b"), 2: (0, "a")}
    assert by_number[0]["task_id"] != by_number[2]["task_id"]
    assert len(engine.specs) == 6


async def test_a_resumed_run_makes_again_what_was_not_trained_and_goes_on_where_the_first_would_have(tmp_path):
    def new(name, place):
        engine = QuickEngine(lambda spec: float(spec.sample) if spec.sample != 1 or spec.agent == "a" else 3.0)
        made = make(tmp_path / name, engine, steps=40, max_staleness=40, place=place, scale_rewards="agent", curriculum={"skip_after": 1})
        return engine, *made

    async def run(name, n, place=START):
        engine, producer, sent = new(name, place)
        async with running(producer):
            await until(lambda: len(groups(sent)) >= n)
        return engine, groups(sent)[:n]

    whole, done = await run("whole", 40)
    saved = done[9]
    assert saved.open, "some groups are under way"
    gone = {group.position for group in done[:8]}
    first = next(open_positions(0, gone))
    under_way = [(group.position, *group.drawn) for group in done[8:10]] + list(saved.open)
    place = Place(first, tuple(sorted(position for position in gone if position > first)), tuple(under_way), saved.state)
    place = Place(**json.loads(json.dumps(asdict(place))))
    again, rest = await run("again", 32, place)
    assert gone.isdisjoint(group.position for group in rest)
    asked = {(spec.task.id, spec.agent, spec.seed) for spec in whole.specs}
    first = {(spec.task.id, spec.agent, spec.seed) for spec in again.specs[: 4 * len(place.again)]}
    assert first <= asked, "the same tasks with the same seeds"
    uninterrupted = {group.position: group.drawn for group in done}
    both = {group.position: group.drawn for group in rest if group.position in uninterrupted}
    assert len(both) > 25
    assert both == {position: uninterrupted[position] for position in both}
    assert rest[-1].state["scales"].keys() == {"a", "b"}


async def test_a_part_that_never_says_anything_ends_the_run_and_is_named(tmp_path):
    producer, _ = make(tmp_path, QuickEngine(lambda spec: 0.0 if spec.agent == "b" else float(spec.sample)), steps=50)
    with pytest.raises(RunStopped, match=r"40 groups in a row gave no training row \(40 with all rewards equal; 40 of b/set\)"):
        await producer.run()


async def test_tasks_without_variance_rest_and_their_share_is_a_metric(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # at most three groups under way
    engine = QuickEngine(lambda spec: 1.0 if spec.task.id == "set1" else float(spec.sample))
    rest = {"skip_after": 1, "revisit": 100}
    producer, sent = make(tmp_path, engine, steps=8, max_staleness=9, agents={"a": 1.0}, sessions=1, curriculum=rest)
    async with running(producer):
        await until(lambda: len(groups(sent)) == 16)
    assert Counter(line["task_id"] for line in lines(tmp_path))["set1"] <= 2, "once more at most: it was under way already"
    resting = [
        message.values["mixture/a/set/resting"] for message in sent if isinstance(message, Metrics) and "groups/trained" in message.values
    ]
    assert resting[-1] == (1.0, 3.0)


async def test_groups_never_mix_agents_unless_asked(tmp_path):
    for mixed in (False, True):
        folder = tmp_path / str(mixed)
        weights = {"a": 3.0, "b": 1.0}
        mixture = {"agents": weights, "mixed_groups": mixed}
        producer, sent = make(folder, QuickEngine(by_sample), steps=3, max_staleness=9, agents=weights, mixture=mixture, group_size=4)
        async with running(producer):
            await until(lambda sent=sent: len(groups(sent)) == 3)
        made = lines(folder)
        if mixed:
            assert all(line["agent"] == "" and Counter(line["agents"].values()) == {"a": 3, "b": 1} for line in made)
            assert total(sent, "mixture/mixed/set/trained_total") == 3
        else:
            assert all("agents" not in line for line in made)
            assert [line["agent"] for line in made] == ["a", "b", "a"] or [line["agent"] for line in made] == ["a", "a", "b"]


async def test_advantages_are_scaled_for_each_agent_when_asked(tmp_path):
    """b's rewards are ten times a's: divided by the agent's spread both average one."""
    engine = QuickEngine(lambda spec: spec.sample * (0.1 if spec.agent == "a" else 1.0) * (1 + (spec.task.id == "set0")))
    producer, sent = make(tmp_path, engine, steps=3, max_staleness=9, scale_rewards="agent")
    async with running(producer):
        await until(lambda: len(groups(sent)) == 6)
    for line in lines(tmp_path):
        (agent, scale), (low, high) = *line["scales"].items(), line["advantages"].values()
        assert agent == line["agent"]
        assert high == -low == pytest.approx(line["std"] / scale, abs=1e-6)
    sizes = {agent: [max(line["advantages"].values()) for line in lines(tmp_path) if line["agent"] == agent] for agent in "ab"}
    assert sizes["a"] == pytest.approx(sizes["b"], abs=1e-5)
    assert max(sizes["a"]) > min(sizes["a"]) + 0.2, "what groups of one agent differ in is kept"
