"""The producer with an engine that answers at once: order, evaluations, weighting, and the end when nothing can be trained."""

import asyncio
import contextlib
import re

import pytest

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
from longrein.training.producer import Place, Producer
from longrein.training.schedule import Curriculum, LookAhead


class QuickEngine:
    """Rollouts of one call whose number of tokens and reward the test chooses."""

    def __init__(self, reward, n_tokens=lambda spec: 4, gates=()):
        self.version, self.reward, self.n_tokens, self.gates = 0, reward, n_tokens, dict(gates)
        self.specs, self.under_way = [], 0

    async def rollout(self, spec):
        self.specs.append(spec)
        await asyncio.sleep(0)
        if (spec.phase, spec.sample) in self.gates:
            await self.gates[spec.phase, spec.sample].wait()
        value, n = self.reward(spec), self.n_tokens(spec)
        call = ModelCall("c0", 0, None, [1, 2], 2, [3] * n, [-1.0] * n, version_first=self.version, version_last=self.version)
        turn = Turn(call, TurnLabel("train", "own"), "structure")
        verdict = Verdict.unscorable("no") if value is None else Verdict("passed" if value == 1 else "failed", min(1.0, max(0.0, value)))
        return Rollout(
            spec.id,
            spec.group_id,
            spec.agent,
            "set",
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


def make(tmp_path, engine, *, steps=3, max_staleness=2, **train):
    config = from_mapping(
        {
            "taskset": "set",
            "agents": {"a": {}, "b": {}},
            "limits": {"sessions": 2},
            "train": {"group_size": 2, "rows_per_step": 4, **train},
            "eval": {"taskset": "set", "samples": 2},
        }
    )
    tasks = [Task(f"t{i}", f"d{i}", PublicTask("p"), TaskRef("set", f"t{i}"), "v") for i in range(4)]
    sent = []
    ahead = LookAhead(rows_per_step=4, max_staleness=max_staleness, first_version=1, steps=steps, version=1)
    producer = Producer(
        config,
        engine,
        curriculum=Curriculum(tasks[:3], ["a", "b"], seed=0),
        eval_tasks=tasks[3:],
        place=Place(),
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
    producer, sent = make(tmp_path, engine)
    async with running(producer):
        await until(lambda: len(engine.specs) == 4)  # every worker holds a training session
        producer.evaluate("eval:0")
        training.set()
        for _ in range(100):  # two workers are free while two evaluations are under way
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
    with pytest.raises(RunStopped, match=re.escape(f"nothing to train on: 40 groups in a row gave no training row ({why}")):
        await producer.run()
    assert not [message for message in sent if isinstance(message, GroupDone) and message.rows]


async def test_rates_count_what_was_skipped_too(tmp_path):
    """One group of (0, 1) and one of (1, 1), skipped: the pass rate is 3 of 4."""
    engine = QuickEngine(lambda spec: 1.0 if spec.agent == "b" else float(spec.sample))
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
