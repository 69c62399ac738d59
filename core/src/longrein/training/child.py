"""`python -m longrein.training.child FD`: the process in which sessions run while the trainer trains in the other.

It reads control messages from standard input and writes messages to the pipe FD. When standard input ends without a
`stop`, the trainer is dead: the child ends its sessions.
"""

from __future__ import annotations

import asyncio
import json
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from attrs import evolve

from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import Config, from_mapping, task_sources
from longrein.errors import ConfigError, LongreinError
from longrein.model import Task
from longrein.plugins import PluginHost
from longrein.rollout.policy import endpoint_of, policy_agents
from longrein.rollout.record import RunRecorder
from longrein.rollout.tasks import load_all, open_taskset
from longrein.training.messages import Ended, Heartbeat, Ready
from longrein.training.producer import Place, Producer, RolloutEngine
from longrein.training.schedule import LookAhead

HEARTBEAT_S = 2.0
LINE_LIMIT = 1 << 24
"""Bytes of one control message; the first holds the whole config."""

EngineFactory = Callable[[Config, PluginHost, PolicyEndpoint, RunRecorder], AbstractAsyncContextManager[RolloutEngine]]


class TrainerGone(Exception):
    """Standard input ended: the trainer is dead."""


class Outbox:
    """Sends messages from a thread, so that a slow reader never blocks the event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._drain, name="outbox", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.put(None)
        self._thread.join(timeout=10)

    def send(self, message: Any) -> None:
        """Queue a message."""
        self._queue.put(message)

    def _drain(self) -> None:
        while (message := self._queue.get()) is not None:
            try:
                self._connection.send(message)
            except OSError:  # nobody reads any more; the end of standard input says so too
                return


def main(argv: list[str], engine: EngineFactory | None = None) -> int:
    """Serve one trainer; returns the exit status.

    Args:
        argv: the number of the inherited write end.
        engine: makes the engine; default longrein.rollout.engine.Engine.
    """
    fd = int(argv[0])
    os.set_inheritable(fd, False)  # agents must not hold the write end: its close is how the trainer sees our death
    with Connection(fd, readable=False) as connection, Outbox(connection) as outbox:
        try:
            asyncio.run(_Child(outbox, engine or _real_engine).run())
            outbox.send(Ended("stopped"))
        except TrainerGone:
            return 1
        except LongreinError as error:
            outbox.send(Ended(str(error), type(error).__name__))
        except Exception as error:
            traceback.print_exc()
            outbox.send(Ended(f"the engine process failed: {type(error).__name__}: {error}", "RunStopped"))
            return 1
    return 0


def _real_engine(
    config: Config, host: PluginHost, endpoint: PolicyEndpoint, recorder: RunRecorder
) -> AbstractAsyncContextManager[RolloutEngine]:
    from longrein.rollout.engine import Engine

    return Engine(config, host, endpoint=endpoint, recorder=recorder, training=True)


class _Child:
    def __init__(self, outbox: Outbox, engine: EngineFactory) -> None:
        self._send, self._engine = outbox.send, engine
        self._version = 0
        self._producer: Producer | None = None

    async def run(self) -> None:
        """Serve until `stop`."""
        lines = await _standard_input()
        start = await _message(lines)
        config = from_mapping(start["config"])
        host = PluginHost.load(config.plugins.use, folder=Path(start["folder"]))
        tasks, eval_tasks = await asyncio.to_thread(training_tasks, config, host)
        agents = tuple(policy_agents(config, host))
        if not agents:
            raise ConfigError(f"none of the agents {', '.join(config.agents)} calls the model, so there is nothing to train")
        weights = agent_weights(config, agents)
        self._send(Ready(len(tasks), len(eval_tasks), agents))
        go = await self._control(lines, until="go")
        if go is None:
            return
        config = evolve(config, train=evolve(config.train, token_budget=go["token_budget"]))
        tools = any(host.agent_class(name).capabilities.tools for name in agents)
        endpoint = await self._endpoint(config, go, tools=tools)
        recorder = RunRecorder(Path(start["run_folder"]), exist_ok=True)
        async with self._engine(config, host, endpoint, recorder) as engine:
            self._producer = Producer(
                config,
                engine,
                agents=weights,
                tasks=tasks,
                eval_tasks=eval_tasks,
                place=Place(**start["place"]),
                number=start["number"],
                look_ahead=LookAhead(version=self._version, **start["look_ahead"]),
                token_budget=go["token_budget"],
                recorder=recorder,
                send=self._send,
                traces=start["traces"],
            )
            await _first_of(self._producer.run(), self._control(lines, until="stop"), self._beat())

    async def _endpoint(self, config: Config, go: Mapping[str, Any], *, tools: bool) -> PolicyEndpoint:
        from longrein.capture.preflight import check_endpoint

        endpoint = endpoint_of(config) if (given := go["endpoint"]) is None else PolicyEndpoint.from_plain(given)
        return await check_endpoint(evolve(endpoint, adapter=go["adapter"]), training=True, tools=tools)

    async def _control(self, lines: asyncio.StreamReader, *, until: str) -> dict[str, Any] | None:
        """Obey messages until one of kind `until` (returned) or `stop` (None)."""
        while True:
            message = await _message(lines)
            kind = message["kind"]
            if kind == "stop":
                return None
            if kind == until:
                return message
            if kind == "version":
                self._version = message["version"]
                if self._producer:
                    self._producer.set_version(self._version)
            elif kind == "dropped" and self._producer:
                self._producer.rows_dropped(message["rows"])
            elif kind == "eval" and self._producer:
                self._producer.evaluate(message["phase"])

    async def _beat(self) -> None:
        while True:
            self._send(Heartbeat())
            await asyncio.sleep(HEARTBEAT_S)


def agent_weights(config: Config, agents: Sequence[str]) -> dict[str, float]:
    """Return the weight of each agent that calls the model.

    Raises:
        ConfigError: another agent has a weight, or all have the weight 0.
    """
    given = config.train.mixture.agents
    if silent := [name for name in given if name not in agents]:
        raise ConfigError(f"[train.mixture] agents gives {silent[0]!r} a weight, but that agent does not call the model; leave it out")
    weights = {name: given.get(name, 1.0) for name in agents}
    if not any(weights.values()):
        raise ConfigError(f"[train.mixture] agents gives {', '.join(agents)} the weight 0, so nothing is left to train")
    return weights


def training_tasks(config: Config, host: PluginHost) -> tuple[list[Task], list[Task]]:
    """Return the tasks that are trained on and those of [eval].

    Raises:
        ConfigError: a task set is not for training, or a task is in both, by its id in the task set or by content.
    """
    sources = task_sources(config)
    for section in sources.values():
        if refused := open_taskset(section, host).training_refused:
            raise ConfigError(refused)
    tasks = load_all(sources, host)
    if config.eval is None:
        return tasks, []
    eval_tasks = load_all(task_sources(config.eval), host)
    ids, digests = {(task.ref.taskset, task.ref.task_id) for task in tasks}, {task.digest for task in tasks}
    both = [task.id for task in eval_tasks if (task.ref.taskset, task.ref.task_id) in ids or task.digest in digests]
    if both:
        raise ConfigError(
            f"[eval.taskset] has {len(both)} tasks that are also trained on, for example {both[0]!r}; evaluate on others "
            "(another split, or `exclude` a list of ids in [taskset])"
        )
    return tasks, eval_tasks


async def _first_of(*works: Awaitable[Any]) -> None:
    """Run until the first ends, cancel the others, raise what it raised."""
    tasks = [asyncio.ensure_future(work) for work in works]
    loop, here = asyncio.get_running_loop(), asyncio.current_task()
    assert here is not None
    loop.add_signal_handler(signal.SIGTERM, here.cancel)
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


async def _message(lines: asyncio.StreamReader) -> dict[str, Any]:
    line = await lines.readline()
    if not line.endswith(b"\n"):
        raise TrainerGone
    message: dict[str, Any] = json.loads(line)
    return message


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
