"""Make a list of rollouts with one policy: what `run` and `compare` share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from longrein.config import Config
from longrein.errors import RunStopped
from longrein.model import Group, Rollout
from longrein.rollout.flow import Flow
from longrein.rollout.groups import Gathering
from longrein.rollout.policy import open_policy
from longrein.rollout.record import RunRecorder
from longrein.rollout.spec import RolloutSpec, SessionSpec

if TYPE_CHECKING:
    from longrein.plugins import PluginHost


async def make_rollouts(
    config: Config,
    host: PluginHost,
    specs: Sequence[RolloutSpec],
    *,
    recorder: RunRecorder,
    finished: Callable[[Rollout], None],
    started: Callable[[SessionSpec], None] | None = None,
    compared: Callable[[Group, Group], None] | None = None,
    served_name: str | None = None,
    log: Callable[[str], None],
) -> None:
    """Start the policy and the engine, make rollouts in order, end both.

    Args:
        config: the whole config; its policy answers.
        host: the loaded plugins.
        specs: the rollouts; a bounded number is under way at once.
        recorder: takes each rollout.
        finished: called with each recorded rollout.
        started: called when a session begins.
        compared: called with each group of two or more, before and after its rollouts were compared; without it none are.
        served_name: name under which the embedded server serves the policy.
        log: takes progress lines.

    Raises:
        RunStopped: too many rollouts cannot be scored.
    """
    from longrein.rollout.engine import Engine

    waiting, gathering, flow = iter(specs), Gathering(specs), Flow(config)

    async def worker() -> None:
        while True:
            async with flow.rollout() as sampled:
                if (spec := next(waiting, None)) is None:
                    return
                rollout = await engine.rollout(spec, sampled)
                finished(rollout)
                if compared and (group := gathering.add(rollout)):
                    compared(group, await engine.score_group(group))

    async with (
        open_policy(config, host, folder=recorder.folder, name=served_name, log=log) as endpoint,
        Engine(config, host, endpoint=endpoint, recorder=recorder, started=started) as engine,
    ):
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(flow.n_workers):
                    group.create_task(worker())
        except* RunStopped as stopped:
            raise stopped.exceptions[0] from None
