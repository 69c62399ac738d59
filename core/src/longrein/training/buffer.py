"""The queue of rows that TRL drains. It knows the step that every row will be trained in, and so its true staleness."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from longrein.errors import RunStopped
from longrein.training.messages import GroupDone, TrainRow
from longrein.training.producer import Place
from longrein.training.state import TrainState

POLL_S = 0.5
TOO_OLD_AT_LEAST = 64
"""Rows in a row that must be too old before a run ends for it, however small its steps are."""


class RowBuffer:
    """Rows in order of arrival, handed out for steps of `rows_per_step` rows.

    TRL takes staleness when a row is pulled, up to a step before it is trained. Rows are handed out in order and every
    step takes the same number, so the step and its version are known here.

    Args:
        state: where the run stands.
        rows_per_step: rows of one optimizer step.
        max_staleness: versions that a row may lag behind at the loss; older ones are dropped and counted.
        max_steps: steps of the whole run.
    """

    def __init__(self, state: TrainState, *, rows_per_step: int, max_staleness: int, max_steps: int) -> None:
        self._rows: queue.Queue[tuple[int, int, TrainRow]] = queue.Queue()
        self._rows_per_step, self._max_staleness = rows_per_step, max_staleness
        self._steps = max_steps - state.step
        self._first_version = state.version + 1
        self._handed = 0
        self._last: Any = None
        self._in_step: deque[tuple[int, int]] = deque()
        self._left: dict[int, int] = {}
        self._done = set(state.place.done)
        self._position = state.place.position
        self._drawn = {position: (task, visit) for position, task, visit in state.place.again}
        self._state = state.place.state
        self._lock = threading.Lock()
        self.groups_stepped = state.groups_stepped
        self.dropped = 0
        """Rows dropped as too old."""
        self._dropped_in_a_row = 0
        self.waiting_since: float | None = None
        """When the trainer began to wait for the row that it waits for now."""
        self._check: Callable[[], None] = lambda: None
        self._tell_dropped: Callable[[int], None] = lambda rows: None

    def watch(self, check: Callable[[], None], *, dropped: Callable[[int], None]) -> None:
        """Set what raises when no more rows will come, and what is told about dropped rows."""
        self._check, self._tell_dropped = check, dropped

    def look_ahead(self) -> dict[str, int]:
        """Return the arguments of the child's LookAhead."""
        return {
            "rows_per_step": self._rows_per_step,
            "max_staleness": self._max_staleness,
            "first_version": self._first_version,
            "steps": self._steps,
        }

    def add(self, group: GroupDone) -> None:
        """Take a finished group (called by the reader thread)."""
        with self._lock:
            self._left[group.position] = len(group.rows)
            self._drawn |= {position: (task, visit) for position, task, visit in group.open} | {group.position: group.drawn}
            self._state = group.state
        for row in group.rows:
            self._rows.put((group.position, group.number, row))

    def qsize(self) -> int:
        """Return the number of rows waiting."""
        return self._rows.qsize()

    @property
    def full(self) -> bool:
        """True while two more steps could be made with the rows that wait."""
        return self.qsize() >= 2 * self._rows_per_step

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Return the next row as TRL's RolloutSample.

        Past the last step the last row is handed out again: accelerate's dispatcher fetches one batch more than is trained.

        Raises:
            queue.Empty: no row within `timeout` seconds.
            LongreinError: no row will come any more.
        """
        self.waiting_since = self.waiting_since or time.monotonic()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._check()
            if self._handed >= self._steps * self._rows_per_step:
                self.waiting_since = None
                return self._last
            try:
                position, number, row = self._rows.get(block, POLL_S)
            except queue.Empty:
                if not block or (deadline is not None and time.monotonic() >= deadline):
                    raise
                continue
            staleness = self._first_version + self._handed // self._rows_per_step - row.row.version
            if staleness > self._max_staleness:
                self._drop(position)
                continue
            self._handed += 1
            self._dropped_in_a_row, self.waiting_since = 0, None
            self._in_step.append((position, staleness))
            self._last = _sample(row, number)
            return self._last

    def step_done(self) -> dict[str, float]:
        """Account for one optimizer step; return the staleness of its rows at the loss."""
        rows = [self._in_step.popleft() for _ in range(self._rows_per_step)]
        for position, _ in rows:
            if self._one_less(position):
                self.groups_stepped += 1
        staleness = [float(value) for _, value in rows]
        dropped, self.dropped = self.dropped, 0
        mean, most = sum(staleness) / len(staleness), max(staleness)
        return {"staleness/mean": mean, "staleness/max": most, "staleness/dropped_rows_total": float(dropped)}

    def place(self) -> Place:
        """Return where a resumed run goes on: groups whose rows were not all trained are made again."""
        with self._lock:
            again = tuple((position, *drawn) for position, drawn in sorted(self._drawn.items()))
            return Place(self._position, tuple(sorted(self._done)), again, self._state)

    def _drop(self, position: int) -> None:
        self.dropped += 1
        self._dropped_in_a_row += 1
        self._one_less(position)
        self._tell_dropped(1)
        if self._dropped_in_a_row > max(TOO_OLD_AT_LEAST, 2 * (self._max_staleness + 1) * self._rows_per_step):
            raise RunStopped(
                f"{self._dropped_in_a_row} rows in a row were too old to be trained: sessions take longer than [train] max_staleness "
                f"{self._max_staleness} steps. Raise it or rows_per_step, or lower [limits] timeout_s"
            )

    def _one_less(self, position: int) -> bool:
        with self._lock:
            self._left[position] -= 1
            if self._left[position]:
                return False
            self._finish(position)
            return True

    def _finish(self, position: int) -> None:
        del self._left[position], self._drawn[position]
        self._done.add(position)
        while self._position in self._done:
            self._done.remove(self._position)
            self._position += 1


def _sample(row: TrainRow, number: int) -> Any:
    import numpy as np
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    return RolloutSample(
        prompt=list(row.prompt),
        completion=list(row.completion),
        input_ids=np.asarray(row.row.input_ids, dtype=np.int64),
        completion_mask=np.asarray(row.row.mask, dtype=np.int64),
        old_log_probs=np.asarray(row.row.logprobs, dtype=np.float32),
        advantage=row.advantage,
        model_version=row.row.version,
        group_id=number,
        metrics={},
    )
