"""Makes groups of rollouts in order and sends their rows; runs evaluations in between."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, evolve, field, frozen

from longrein.config import Config
from longrein.errors import RunStopped
from longrein.model import Group, Rollout, Task
from longrein.rollout.changes import Changes
from longrein.rollout.flow import Flow
from longrein.rollout.groups import group_line
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.summary import Cell
from longrein.training import advantages, figures
from longrein.training.curriculum import Curriculum, Draw
from longrein.training.messages import EvalDone, GroupDone, Metrics, Note, TrainRow
from longrein.training.mixture import Gate, Mixture, open_positions
from longrein.training.schedule import LookAhead
from longrein.turns import RowSet, build_rows

if TYPE_CHECKING:
    from longrein.rollout.record import RunRecorder

MAX_EMPTY_GROUPS = 40
"""A run ends when so many groups in a row gave no row."""


class RolloutEngine(Protocol):
    """What the producer needs of longrein.rollout.engine.Engine."""

    version: int

    async def rollout(self, spec: RolloutSpec, sampled: Callable[[], None]) -> Rollout: ...

    async def score_group(self, group: Group) -> Group: ...


@frozen
class Place:
    """Where a run stands: what a resumed one goes on from."""

    position: int = 0
    """First position of the training order that is not done."""
    done: tuple[int, ...] = ()
    """Positions after it that are done."""
    again: tuple[tuple[int, str, int], ...] = ()
    """Position, task id and visit of the groups that were drawn and are not done."""
    state: Mapping[str, Any] = field(factory=dict)
    """Where the curriculum and the scales of rewards stand."""


@define
class _GroupUnderWay:
    draw: Draw
    number: int
    rollouts: list[Rollout] = field(factory=list)


class Producer:
    """Keeps a bounded number of groups under way.

    Args:
        config: the whole config.
        engine: makes the rollouts.
        agents: agents that are trained, with their weights.
        tasks: tasks of all task sets that are trained on.
        eval_tasks: tasks of [eval].
        place: where to begin.
        number: number of the first group; others follow.
        look_ahead: how far to run ahead.
        token_budget: longest row.
        recorder: takes a line for each group.
        send: takes messages for the trainer; must not block.
        traces: True to send messages with the rows.
    """

    def __init__(
        self,
        config: Config,
        engine: RolloutEngine,
        *,
        agents: Mapping[str, float],
        tasks: Sequence[Task],
        eval_tasks: Sequence[Task],
        place: Place,
        number: int,
        look_ahead: LookAhead,
        token_budget: int,
        recorder: RunRecorder,
        send: Callable[[Any], None],
        traces: bool,
    ) -> None:
        self._config, self._engine, self._eval_tasks = config, engine, eval_tasks
        wants, names = config.train, dict.fromkeys(task.taskset for task in tasks)
        sets = {name: wants.mixture.tasksets.get(name, 1.0) for name in names}
        mixture = Mixture({"": 1.0} if wants.mixture.mixed_groups else agents, sets)
        self._members = Mixture(agents, {"": 1.0})
        self._curriculum = Curriculum(
            mixture, tasks, wants.curriculum, config.run.seed, state=place.state.get("curriculum"), again=place.again
        )
        self._scales = advantages.AgentScales(place.state.get("scales"))
        self._several = len(names) > 1
        self._positions = open_positions(place.position, place.done)
        self._gate: Gate[GroupDone] = Gate(mixture, place.position, place.done)
        self._open: dict[int, Draw] = {}
        self._start = self._number = number
        self._look_ahead, self._token_budget = look_ahead, token_budget
        self._recorder, self._send, self._traces = recorder, send, traces
        self._groups: dict[str, _GroupUnderWay] = {}
        self._specs: deque[RolloutSpec] = deque()
        self._eval_specs: deque[RolloutSpec] = deque()
        self._eval: tuple[str, int, list[Cell]] | None = None
        self._empty: list[tuple[str, str]] = []
        self._passes: dict[str, int] = {}
        self._flow = Flow(config)
        self._changed = Changes()
        engine.version = look_ahead.version

    async def run(self) -> None:
        """Make rollouts until cancelled.

        Raises:
            RunStopped: nothing trainable came of many groups, or the engine stopped the run.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._flow.n_workers):
                    tasks.create_task(self._work())
        except BaseExceptionGroup as group:
            raise _leaf(group) from None

    def set_version(self, version: int) -> None:
        """Note the version that is live now."""
        self._engine.version = self._look_ahead.version = version
        self._changed.notify()

    def rows_dropped(self, count: int) -> None:
        """Note rows that the trainer could not use, so that others are made in their place."""
        self._look_ahead.rows -= count
        self._changed.notify()

    def evaluate(self, phase: str) -> None:
        """Queue the rollouts of an evaluation; no training session starts until all are done."""
        evaluation = self._config.eval
        if evaluation is None:
            raise ValueError("the config has no [eval]")
        # A resumed run may evaluate at the same step again: other ids, same seeds.
        again = f".from{self._start}" if self._start else ""
        self._eval_specs.extend(
            RolloutSpec.of(task, agent, i, run_seed=self._config.run.seed, phase=phase, group_id=f"{phase}{again}.{agent}.{task.id}")
            for task in self._eval_tasks
            for i in range(evaluation.samples)
            for agent in self._config.agents
        )
        self._eval = (phase, len(self._eval_specs), [])
        self._changed.notify()

    async def _work(self) -> None:
        while True:
            async with self._flow.rollout() as sampled:
                spec = await self._next()
                rollout = await self._engine.rollout(spec, sampled)
                if spec.group_id in self._groups:
                    await self._add(self._groups[spec.group_id], rollout)
                else:
                    self._evaluated(rollout)

    async def _next(self) -> RolloutSpec:
        while True:
            if self._eval_specs:
                return self._eval_specs.popleft()
            if self._eval is None:
                if self._specs:
                    return self._specs.popleft()
                if self._look_ahead.may_start():
                    self._start_group()
                    continue
            await self._changed.wait()

    def _start_group(self) -> None:
        self._begin(next(self._positions))
        self._look_ahead.expected += self._config.train.group_size

    def _begin(self, position: int) -> None:
        """Draw a task for a position and queue its rollouts, before others: a replacement is what the gate waits for."""
        draw = self._open[position] = self._curriculum.draw(position)
        number, self._number = self._number, self._number + 1
        taskset = draw.part.taskset
        if draw.visit > self._passes.get(taskset, 0):
            self._passes[taskset] = draw.visit
            self._send(Note(f"pass {draw.visit + 1} over the tasks of {taskset}"))
        name = f"g{number:06d}"
        self._groups[name] = _GroupUnderWay(draw, number)
        # A task comes again in the next pass: its sessions then get other seeds.
        seed = self._config.run.seed + 1_000_003 * (draw.visit + 1)
        made = [
            RolloutSpec.of(draw.task, agent, sample, run_seed=seed, phase="train", group_id=name)
            for sample, agent in enumerate(self._agents_of(draw))
        ]
        self._specs.extendleft(reversed(made))

    def _agents_of(self, draw: Draw) -> list[str]:
        """Return the agent of each rollout of a group."""
        size = self._config.train.group_size
        if draw.part.agent:
            return [draw.part.agent] * size
        return [self._members.at(draw.position * size + sample).agent for sample in range(size)]

    def _evaluated(self, rollout: Rollout) -> None:
        assert self._eval is not None
        phase, n_rollouts, cells = self._eval
        cells.append(Cell.of(rollout))
        if len(cells) % max(1, n_rollouts // 4) == 0:
            self._send(Note(f"evaluation: {len(cells)} of {n_rollouts} rollouts"))
        if len(cells) == n_rollouts:
            self._eval = None
            self._send(EvalDone(phase, tuple(cells)))
            self._changed.notify()

    async def _add(self, group: _GroupUnderWay, rollout: Rollout) -> None:
        group.rollouts.append(rollout)
        if len(group.rollouts) < self._config.train.group_size:
            return
        del self._groups[rollout.group_id]
        members = tuple(sorted(group.rollouts, key=lambda member: member.sample))
        draw = group.draw
        made = Group(rollout.group_id, draw.part.agent, draw.part.taskset, draw.task.id, members)
        scored = await self._engine.score_group(made)
        built = [await asyncio.to_thread(self._build, rollout) for rollout in scored.rollouts]
        row_sets = {r.id: rows for r, (rows, _) in zip(scored.rollouts, built, strict=True)}
        self._complete(group, made, scored, row_sets, [f for _, f in built])
        self._changed.notify()

    def _build(self, rollout: Rollout) -> tuple[RowSet, figures.Values]:
        rows = build_rows(rollout.trajectory, rollout_id=rollout.id, agent=rollout.agent, token_budget=self._token_budget)
        return rows, figures.of_rollout(rollout, rows.relabelled, by_taskset=self._several)

    def _complete(
        self, group: _GroupUnderWay, made: Group, scored: Group, row_sets: dict[str, RowSet], values: Sequence[figures.Values]
    ) -> None:
        draw, rewards = group.draw, [rollout.reward.value for rollout in scored.rollouts]
        score = advantages.score(rewards)
        scales: Mapping[str, float] | None = None
        rows: list[TrainRow] = []
        if score.skipped is None:
            if self._config.train.scale_rewards == "agent":
                score, scales = self._scales.scale(score, rewards, [rollout.agent for rollout in scored.rollouts])
            rows = self._rows(scored, score, row_sets)
        skipped = score.skipped or (None if rows else "no_row")
        self._curriculum.finished(draw, [Cell.of(rollout).passed for rollout in scored.rollouts])
        self._recorder.group(group_line(made, scored) | _record(group, scored, score, rows, skipped, scales))
        for figure in (*values, figures.of_group(skipped, len(rows), draw.part, self._curriculum.resting(draw.part))):
            self._send(Metrics(figure))
        self._count_empty(skipped, draw, scored)
        if skipped is None:
            done = GroupDone(draw.position, group.number, tuple(rows), drawn=(draw.task.id, draw.visit))
            for leaving in self._gate.finish(draw.position, done):
                self._leave(leaving)
        else:
            self._begin(draw.position)

    def _leave(self, done: GroupDone) -> None:
        """Hand a group over, with what a run goes on from that knows of it."""
        del self._open[done.position]
        self._look_ahead.expected -= self._config.train.group_size
        self._look_ahead.rows += len(done.rows)
        still_open = tuple((draw.position, draw.task.id, draw.visit) for draw in self._open.values())
        state = {"curriculum": self._curriculum.state(), "scales": self._scales.state()}
        self._send(evolve(done, open=still_open, state=state))

    def _rows(self, scored: Group, score: advantages.GroupScore, row_sets: dict[str, RowSet]) -> list[TrainRow]:
        trained = {key: count for key, rows in row_sets.items() if (count := sum(row.n_trained for row in rows.rows))}
        weights = dict.fromkeys(trained, 1.0)
        if self._config.train.weighting == "rollout" and trained:
            weights = advantages.rollout_weights(trained)
        made = []
        for rollout, advantage in zip(scored.rollouts, score.advantages, strict=True):
            if advantage is None:
                continue
            for row in row_sets[rollout.id].rows:
                if row.n_trained:
                    prompt, completion = _messages(rollout, row.call_ids) if self._traces else ((), ())
                    made.append(TrainRow(row, advantage * weights[rollout.id], prompt, completion))
        return made

    def _count_empty(self, skipped: str | None, draw: Draw, scored: Group) -> None:
        if skipped is None:
            self._empty.clear()
            return
        self._empty.append((skipped, str(draw.part)))
        if len(self._empty) >= MAX_EMPTY_GROUPS:
            why = {"no_variance": "all rewards equal", "too_few_scored": "fewer than two rollouts scored", "no_row": "no trained token"}
            counts = ", ".join(
                f"{count} with {why[reason]}" for reason, count in Counter(reason for reason, _ in self._empty).most_common()
            )
            parts = ", ".join(f"{count} of {part}" for part, count in Counter(part for _, part in self._empty).most_common())
            last = next((f"; the last: {r.reward.reason}" for r in scored.rollouts if r.reward.value is None and r.reward.reason), "")
            raise RunStopped(
                f"nothing to train on: {MAX_EMPTY_GROUPS} groups in a row gave no training row ({counts}; {parts}){last}; "
                "groups.jsonl has the rewards of each. Easier tasks, a larger [train] group_size, another [reward] "
                "or [train.curriculum] skip_after may help"
            )


def _messages(rollout: Rollout, call_ids: Sequence[str]) -> tuple[Sequence[Any], Sequence[Any]]:
    last = rollout.trajectory.turn(call_ids[-1]).call
    return tuple(rollout.trajectory.messages(last.id)), (last.reply,)


def _record(
    group: _GroupUnderWay,
    scored: Group,
    score: advantages.GroupScore,
    rows: Sequence[TrainRow],
    skipped: str | None,
    scales: Mapping[str, float] | None,
) -> dict[str, Any]:
    versions = [row.row.version for row in rows]
    several = {} if scored.agent else {"agents": {r.id: r.agent for r in scored.rollouts}}
    return {
        "number": group.number,
        "position": group.draw.position,
        **several,
        "baseline": score.baseline,
        "std": score.std,
        **({} if scales is None else {"scales": dict(scales)}),
        "advantages": {r.id: a for r, a in zip(scored.rollouts, score.advantages, strict=True)},
        "rows": len(rows),
        "trained_tokens": sum(row.row.n_trained for row in rows),
        "versions": [min(versions), max(versions)] if versions else None,
        "skipped": skipped,
    }


def _leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
