"""TRL's RolloutWorkerProtocol over the engine process: rows come in through a pipe, its end is the child's death."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from longrein import errors
from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import Config
from longrein.errors import RunStopped
from longrein.rollout.serialize import plain
from longrein.rollout.summary import Cell
from longrein.serve.process import how_ended, tail
from longrein.training.buffer import RowBuffer
from longrein.training.messages import Ended, EvalDone, GroupDone, Metrics, Note, Ready
from longrein.training.state import TrainState

CHILD: tuple[str, ...] = (sys.executable, "-m", "longrein.training.child")
STOP_TIMEOUT_S = 30.0
STALE_AFTER_S = 300.0
# accelerate in the child must not take itself for a rank of the trainer's group.
RANK_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
)


@frozen
class Launch:
    """What the child is started with."""

    config: Config
    folder: Path
    """The config's folder, where plugins named as ./files are looked up."""
    run_folder: Path
    first_group: int
    """Number of the first group."""


class RolloutWorker:
    """The trainer's side of the engine process.

    Args:
        launch: what the child is started with.
        state: where the run stands; the next version and group follow from it.
        buffer: rows for the trainer.
        log: takes lines for people.
    """

    def __init__(self, launch: Launch, state: TrainState, buffer: RowBuffer, *, log: Callable[[str], None]) -> None:
        self.rollout_buffer = buffer
        self.metrics_queue: queue.Queue[Mapping[str, float | tuple[float, float]]] = queue.Queue()
        self._launch, self._log = launch, log
        self._answers: queue.Queue[Ready | EvalDone] = queue.Queue()
        self._go: dict[str, Any] | None = None
        self._ended: Ended | None = None
        self._over = threading.Event()
        self._stopping = False
        self._last_sign = time.monotonic()
        self._lock = threading.Lock()
        reading, writing = Pipe(duplex=False)
        with writing, (launch.run_folder / "engine.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*CHILD, str(writing.fileno())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=[writing.fileno()],
                start_new_session=True,
                env={k: v for k, v in os.environ.items() if k not in RANK_VARIABLES},
            )
        buffer.watch(self.raise_if_over, dropped=lambda rows: self._tell("dropped", rows=rows))
        self._reader = threading.Thread(target=self._read, args=(reading,), name="engine reader", daemon=True)
        self._reader.start()
        self._tell(
            "start",
            config=_set_values(plain(launch.config)),
            folder=str(launch.folder),
            run_folder=str(launch.run_folder),
            place=asdict(state.place),
            number=launch.first_group,
            look_ahead=buffer.look_ahead(),
            traces="trackio" in launch.config.train.report_to,
        )

    @property
    def pid(self) -> int:
        """The engine process's id."""
        return self._process.pid

    def wait_ready(self) -> Ready:
        """Wait until the child has loaded plugins and tasks; raises what it refused."""
        answer = self._answer()
        assert isinstance(answer, Ready)
        return answer

    def connect(self, endpoint: PolicyEndpoint | None, *, token_budget: int, adapter: str | None = None) -> None:
        """Say where the policy is served (None: where the config says), how long rows may be and how adapters are named; for `start`."""
        where = None if endpoint is None else endpoint.plain()
        self._go = {"endpoint": where, "token_budget": token_budget, "adapter": adapter}

    def start(self) -> None:
        """Let the child begin (TRL calls this once, after the first weight sync)."""
        if self._go is None:
            raise ValueError("connect() comes before start()")
        self._tell("go", **self._go)

    def update_model_version(self, model_version: int) -> None:
        """Tell the child which version is live."""
        self._tell("version", version=model_version)

    def evaluate(self, phase: str) -> tuple[Cell, ...]:
        """Run an evaluation at the version that is live and wait for it."""
        self._tell("eval", phase=phase)
        answer = self._answer()
        assert isinstance(answer, EvalDone)
        return answer.cells

    def check_health(self, stale_after_s: float) -> None:
        """Raise when the child is dead or has given no sign of life for so long."""
        self.raise_if_over()
        silent_s = time.monotonic() - self._last_sign
        if silent_s > stale_after_s:
            log = self._launch.run_folder / "engine.log"
            raise RunStopped(f"the engine process has given no sign of life for {silent_s:.0f} s; see {log}")

    def raise_if_over(self) -> None:
        """Raise when the child is dead: its last words, or the signal and the end of its log."""
        if not self._over.is_set() and self._process.poll() is not None:
            self._over.wait(timeout=2)  # what it wrote before its end may still be in the pipe
            self._over.set()
        if self._over.is_set() and not self._stopping:
            raise self._reason()

    def fail(self, reason: str) -> None:
        """Let whoever waits for rows see that the run is over; may be called from any thread."""
        self._ended = Ended(reason, RunStopped.__name__)
        self._over.set()

    def stop(self) -> None:
        """End the child and all its sessions. Calling it again changes nothing."""
        self._stopping = True
        self._tell("stop")
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._reader.join(timeout=5)

    def _tell(self, kind: str, **values: Any) -> None:
        assert self._process.stdin is not None
        line = json.dumps({"kind": kind, **values}) + "\n"
        with self._lock, contextlib.suppress(OSError, ValueError):  # a dead child is noticed where rows are waited for
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()

    def _answer(self) -> Ready | EvalDone:
        while True:
            try:
                return self._answers.get(timeout=0.5)
            except queue.Empty:
                self.check_health(STALE_AFTER_S)

    def _read(self, pipe: Connection) -> None:
        with pipe, contextlib.suppress(EOFError, OSError):
            while True:
                message = pipe.recv()
                self._last_sign = time.monotonic()
                self._take(message)
        self._over.set()

    def _take(self, message: Any) -> None:
        match message:
            case GroupDone():
                self.rollout_buffer.add(message)
            case Metrics(values):
                self.metrics_queue.put(values)
            case Ready() | EvalDone():
                self._answers.put(message)
            case Note(text):
                self._log(text)
            case Ended():
                self._ended = message

    def _reason(self) -> Exception:
        if self._ended is not None:
            kind = getattr(errors, self._ended.error or "RunStopped", RunStopped)
            if kind is errors.UnknownNameError:  # its message is made already
                kind = errors.ConfigError
            error: Exception = kind(self._ended.reason)
            return error
        code = self._process.wait(timeout=5)
        log = self._launch.run_folder / "engine.log"
        return RunStopped(f"the engine process {how_ended(code)}; the end of {log}:\n{tail(log) or '(empty)'}")


def _set_values(value: Any) -> Any:
    """Leave out unset values: a config file has no null."""
    if isinstance(value, dict):
        return {key: _set_values(item) for key, item in value.items() if item is not None}
    return value
