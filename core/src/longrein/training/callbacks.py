"""What longrein does at the trainer's events. All of these are added after TRL's own, so they see the synced policy."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from longrein.config import Config
from longrein.errors import ServeError
from longrein.rollout.record import RunRecorder
from longrein.rollout.summary import Cell, rate
from longrein.training import state as states
from longrein.training.canary import Canary, Reply
from longrein.training.state import TrainState
from longrein.training.watchdog import Watchdog
from longrein.training.worker import RolloutWorker


class LongreinCallback(TrainerCallback):  # type: ignore[misc]
    """Canary, evaluation, staleness, records and resume state.

    Args:
        config: the whole config.
        trainer: the AsyncGRPOTrainer.
        worker: the engine process; None on all ranks but the main one.
        canary: compares the server with the trainer.
        recorder: takes the metrics; None like `worker`.
        watchdog: told when a weight sync begins and ends; None like `worker`.
        state: where the run stood when it began.
        log: takes lines for people.
    """

    def __init__(
        self,
        config: Config,
        trainer: Any,
        *,
        worker: RolloutWorker | None,
        canary: Canary,
        recorder: RunRecorder | None,
        watchdog: Watchdog | None,
        state: TrainState,
        log: Callable[[str], None],
    ) -> None:
        self._config, self._trainer, self._worker, self._canary = config, trainer, worker, canary
        self._recorder, self._watchdog, self._state, self._log = recorder, watchdog, state, log
        self.evals: dict[str, tuple[Cell, ...]] = dict(state.evals)

    def on_train_begin(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Check the first sync; evaluate before training."""
        self._check_sync()
        if state.global_step == 0:
            self._evaluate(0)

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The weight sync comes next."""
        self._sync_since(time.monotonic())

    def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Account for the step, check its sync, evaluate when it is time."""
        if self._worker:
            self._worker.raise_if_over()
            self._worker.metrics_queue.put(self._worker.rollout_buffer.step_done())
        self._check_sync()
        every = self._config.eval.every if self._config.eval else 0
        if every and state.global_step % every == 0 and state.global_step < state.max_steps:
            self._evaluate(state.global_step)

    def on_train_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Evaluate after training."""
        self._evaluate(state.global_step)

    def on_log(self, _args: Any, state: Any, _control: Any, logs: Mapping[str, Any] | None = None, **_: Any) -> None:
        """Append the metrics to the run folder."""
        if self._recorder is None or not logs:
            return
        numbers = {key: value for key, value in logs.items() if isinstance(value, (int, float))}
        self._recorder.metrics({"step": state.global_step, "version": self._trainer.model_version, **numbers})
        if "loss" in numbers:
            self._log(_step_line(state.global_step, state.max_steps, numbers))

    def on_save(self, args: Any, state: Any, _control: Any, **_: Any) -> None:
        """Write what a resumed run needs; the checkpoint is whole from here on."""
        if self._worker is None:
            return
        buffer = self._worker.rollout_buffer
        states.write(
            TrainState(state.global_step, self._trainer.model_version, buffer.groups_stepped, buffer.place(), self.evals),
            Path(args.output_dir) / f"checkpoint-{state.global_step}",
        )

    def _evaluate(self, step: int) -> None:
        phase = f"eval:{step}"
        if self._config.eval is None or phase in self.evals:
            return
        with self._timed("perf/eval_s"):
            if self._worker:
                self._log(f"evaluating at step {step}")
                self.evals[phase] = self._worker.evaluate(phase)
                self._log(f"evaluated at step {step}: {_rates(self.evals[phase])}")
            self._trainer.accelerator.wait_for_everyone()

    def _check_sync(self) -> None:
        self._sync_since(None)
        accelerator, version = self._trainer.accelerator, self._trainer.model_version
        with self._timed("perf/canary_s"):
            asked: list[Any] = [self._ask(version) if accelerator.is_main_process else None, version]
            if accelerator.num_processes > 1:  # scoring is a collective when the model is sharded: every rank does it
                from accelerate.utils import broadcast_object_list

                broadcast_object_list(asked)
            if isinstance(asked[0], ServeError):
                raise asked[0]
            figures = self._canary.compare(asked[0], asked[1], accelerator.unwrap_model(self._trainer.model))
        if self._worker:
            self._worker.metrics_queue.put(figures)

    def _sync_since(self, began: float | None) -> None:
        if self._watchdog:
            self._watchdog.sync_since = began

    def _ask(self, version: int) -> Mapping[int, Reply] | ServeError:
        try:
            return self._canary.sample(version)
        except ServeError as error:
            return error

    @contextmanager
    def _timed(self, key: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        if self._worker:
            self._worker.metrics_queue.put({key: time.perf_counter() - began})


def _rates(cells: Sequence[Cell]) -> str:
    agents = dict.fromkeys(cell.agent for cell in cells)
    rates = {agent: rate(cell for cell in cells if cell.agent == agent) for agent in agents}
    return ", ".join(f"{agent} passed {figures['pass_rate'] or 0:.3f} of {figures['n']}" for agent, figures in rates.items())


def _step_line(step: int, steps: int, numbers: Mapping[str, float]) -> str:
    rates = [
        f"{key.removesuffix('/pass_rate')} {value:.2f}"
        for key, value in numbers.items()
        if key.endswith("/pass_rate") and key.count("/") == 1
    ]
    parts = [f"step {step}/{steps}", *(["passed: " + ", ".join(rates)] if rates else [])]
    for key, name in (("ratio", "ratio"), ("staleness/mean", "staleness"), ("perf/rollout_wait_s", "waited s")):
        if key in numbers:
            parts.append(f"{name} {numbers[key]:.3g}")
    return "  ".join(parts)
