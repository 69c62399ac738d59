"""Makes groups of rollouts in order and sends their rows; runs evaluations in between."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from attrs import define, field, frozen

from longrein.config import Config
from longrein.errors import RunStopped
from longrein.model import Group, Rollout, Task
from longrein.rollout.groups import group_line
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.summary import Cell
from longrein.training import advantages, figures
from longrein.training.messages import EvalDone, GroupDone, Metrics, Note, TrainRow
from longrein.training.schedule import Curriculum, LookAhead
from longrein.turns import RowSet, build_rows

if TYPE_CHECKING:
    from longrein.rollout.record import RunRecorder

MAX_EMPTY_GROUPS = 40
"""A run ends when so many groups in a row gave no row."""


class RolloutEngine(Protocol):
    """What the producer needs of longrein.rollout.engine.Engine."""

    version: int

    async def rollout(self, spec: RolloutSpec) -> Rollout: ...

    async def score_group(self, group: Group) -> Group: ...


@frozen
class Place:
    """Where a run stands: what a resumed one goes on from."""

    position: int = 0
    """First position of the curriculum that is not done."""
    done: tuple[int, ...] = ()
    """Positions after it that are done."""


@define
class _GroupUnderWay:
    position: int
    number: int
    task: Task
    agent: str
    rollouts: list[Rollout] = field(factory=list)


class Producer:
    """Keeps a bounded number of groups under way.

    Args:
        config: the whole config.
        engine: makes the rollouts.
        curriculum: the training groups in order.
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
        curriculum: Curriculum,
        eval_tasks: Sequence[Task],
        place: Place,
        number: int,
        look_ahead: LookAhead,
        token_budget: int,
        recorder: RunRecorder,
        send: Callable[[Any], None],
        traces: bool,
    ) -> None:
        self._config, self._engine, self._curriculum, self._eval_tasks = config, engine, curriculum, eval_tasks
        self._positions = curriculum.positions(place.position, place.done)
        self._start = self._number = number
        self._look_ahead, self._token_budget = look_ahead, token_budget
        self._recorder, self._send, self._traces = recorder, send, traces
        self._groups: dict[str, _GroupUnderWay] = {}
        self._specs: deque[RolloutSpec] = deque()
        self._eval_specs: deque[RolloutSpec] = deque()
        self._eval: tuple[str, int, list[Cell]] | None = None
        self._empty: list[str] = []
        self._passes = 0
        self._changed = asyncio.Event()
        engine.version = look_ahead.version

    async def run(self) -> None:
        """Make rollouts until cancelled.

        Raises:
            RunStopped: nothing trainable came of many groups, or the engine stopped the run.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._config.limits.sessions + 2):  # two more than sessions, so that grading overlaps
                    tasks.create_task(self._work())
        except BaseExceptionGroup as group:
            raise _leaf(group) from None

    def set_version(self, version: int) -> None:
        """Note the version that is live now."""
        self._engine.version = self._look_ahead.version = version
        self._notify()

    def rows_dropped(self, count: int) -> None:
        """Note rows that the trainer could not use, so that others are made in their place."""
        self._look_ahead.rows -= count
        self._notify()

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
        self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _work(self) -> None:
        while True:
            spec = await self._next()
            rollout = await self._engine.rollout(spec)
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
        position = next(self._positions)
        task, agent = self._curriculum.at(position)
        group = _GroupUnderWay(position, self._number, task, agent)
        self._number += 1
        passes = self._curriculum.passes(position)
        if passes > self._passes:
            self._passes = passes
            self._send(Note(f"pass {passes + 1} over {len(self._curriculum.tasks)} tasks"))
        name = f"g{group.number:06d}"
        self._groups[name] = group
        # A task comes again in the next pass: its sessions then get other seeds.
        seed = self._config.run.seed + 1_000_003 * (passes + 1)
        size = self._config.train.group_size
        self._specs.extend(RolloutSpec.of(task, agent, i, run_seed=seed, phase="train", group_id=name) for i in range(size))
        self._look_ahead.expected += size

    def _evaluated(self, rollout: Rollout) -> None:
        assert self._eval is not None
        phase, n_rollouts, cells = self._eval
        cells.append(Cell.of(rollout))
        if len(cells) % max(1, n_rollouts // 4) == 0:
            self._send(Note(f"evaluation: {len(cells)} of {n_rollouts} rollouts"))
        if len(cells) == n_rollouts:
            self._eval = None
            self._send(EvalDone(phase, tuple(cells)))
            self._notify()

    async def _add(self, group: _GroupUnderWay, rollout: Rollout) -> None:
        group.rollouts.append(rollout)
        if len(group.rollouts) < self._config.train.group_size:
            return
        del self._groups[rollout.group_id]
        members = tuple(sorted(group.rollouts, key=lambda member: member.sample))
        made = Group(rollout.group_id, group.agent, rollout.taskset, group.task.id, members)
        scored = await self._engine.score_group(made)
        built = [await asyncio.to_thread(self._build, rollout) for rollout in scored.rollouts]
        row_sets = {r.id: rows for r, (rows, _) in zip(scored.rollouts, built, strict=True)}
        self._complete(group, made, scored, row_sets, [f for _, f in built])
        self._look_ahead.expected -= self._config.train.group_size
        self._notify()

    def _build(self, rollout: Rollout) -> tuple[RowSet, figures.Values]:
        rows = build_rows(rollout.trajectory, rollout_id=rollout.id, agent=rollout.agent, token_budget=self._token_budget)
        return rows, figures.of_rollout(rollout, rows.relabelled)

    def _complete(
        self, group: _GroupUnderWay, made: Group, scored: Group, row_sets: dict[str, RowSet], values: Sequence[figures.Values]
    ) -> None:
        score = advantages.score([rollout.reward.value for rollout in scored.rollouts])
        rows: list[TrainRow] = []
        if score.skipped is None:
            rows = self._rows(scored, score, row_sets)
        skipped = score.skipped or (None if rows else "no_row")
        self._recorder.group(group_line(made, scored) | _record(group, scored, score, rows, skipped))
        for figure in (*values, figures.of_group(skipped, len(rows))):
            self._send(Metrics(figure))
        self._look_ahead.rows += len(rows)
        self._send(GroupDone(group.position, group.number, tuple(rows)))
        self._count_empty(skipped, scored)

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

    def _count_empty(self, skipped: str | None, scored: Group) -> None:
        if skipped is None:
            self._empty.clear()
            return
        self._empty.append(skipped)
        if len(self._empty) >= MAX_EMPTY_GROUPS:
            why = {"no_variance": "all rewards equal", "too_few_scored": "fewer than two rollouts scored", "no_row": "no trained token"}
            counts = ", ".join(f"{count} with {why[reason]}" for reason, count in Counter(self._empty).most_common())
            reason = next((f"; the last: {r.reward.reason}" for r in scored.rollouts if r.reward.value is None and r.reward.reason), "")
            raise RunStopped(
                f"nothing to train on: {MAX_EMPTY_GROUPS} groups in a row gave no training row ({counts}){reason}; "
                "groups.jsonl has the rewards of each. Easier tasks, a larger [train] group_size or another [reward] may help"
            )


def _messages(rollout: Rollout, call_ids: Sequence[str]) -> tuple[Sequence[Any], Sequence[Any]]:
    last = rollout.trajectory.turn(call_ids[-1]).call
    return tuple(rollout.trajectory.messages(last.id)), (last.reply,)


def _record(
    group: _GroupUnderWay, scored: Group, score: advantages.GroupScore, rows: Sequence[TrainRow], skipped: str | None
) -> dict[str, Any]:
    versions = [row.row.version for row in rows]
    return {
        "number": group.number,
        "position": group.position,
        "baseline": score.baseline,
        "std": score.std,
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
