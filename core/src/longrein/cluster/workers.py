"""What runs on the nodes: an actor with a capture endpoint and sandboxes of its own, and one that grades."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from attrs import evolve, frozen

from longrein import toolchain
from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import Config
from longrein.model import SessionResult, TaskRef, Verdict
from longrein.plugins import PluginHost
from longrein.rollout.executor import LocalExecutor
from longrein.rollout.grading import Grader
from longrein.rollout.spec import SessionSpec
from longrein.sandbox import runtime_folder


@frozen
class Share:
    """What a worker is made with; plain data. A worker that is started again on another node gets the same."""

    config: Config
    folder: Path
    """Where plugins named as ./files are looked up."""
    endpoint: PolicyEndpoint
    training: bool
    slots: int
    """Sessions at once."""


class SessionWorker:
    """Runs sessions on its node: the agents' traffic stays there, only plain data leaves.

    Made by Ray as an asynchronous actor; what takes seconds (openenv, toolchains) is done with the first call.
    """

    def __init__(self, share: Share) -> None:
        self._share = share
        self._stack = AsyncExitStack()
        self._executor: LocalExecutor | None = None
        self._opening = asyncio.Lock()
        self._version = 0

    async def ready(self) -> str:
        """Open the executor, unless it is open, and return the node's id."""
        import ray

        async with self._opening:
            if self._executor is None:
                self._executor = await self._open()
        node: str = ray.get_runtime_context().get_node_id()
        return node

    async def run_session(self, spec: SessionSpec, ref: TaskRef, version: int) -> tuple[SessionResult, Verdict | None]:
        """Run one session to its end."""
        await self.ready()
        assert self._executor is not None
        self.set_version(version)
        return await self._executor.run_session(spec, ref)

    def set_version(self, version: int) -> None:
        """Note the policy version that is live; versions only grow."""
        self._version = max(version, self._version)
        if self._executor is not None:
            self._executor.version = self._version

    async def close(self) -> None:
        """End capture and remove the worker's folder."""
        await self._stack.aclose()

    async def _open(self) -> LocalExecutor:
        share = self._share
        limits = evolve(share.config.limits, sessions=share.slots)
        host = PluginHost.load(share.config.plugins.use, folder=share.folder)
        for name, options in share.config.agents.items():
            if spec := host.agent(name, options).toolchain:  # once for each node; a lock keeps others waiting
                await asyncio.to_thread(toolchain.install, name, spec, log=print)
        config = evolve(share.config, limits=limits)
        executor = LocalExecutor(config, host, endpoint=share.endpoint, training=share.training)
        opened = await self._stack.enter_async_context(executor)
        opened.version = self._version
        return opened


class GradeWorker:
    """Grades workspaces on its node; hidden tests are resolved here and nowhere else."""

    def __init__(self, share: Share) -> None:
        self._stack = AsyncExitStack()
        host = PluginHost.load(share.config.plugins.use, folder=share.folder)
        self._grader = Grader(host, self._stack.enter_context(runtime_folder()), share.config.verifiers)
        self._stack.callback(self._grader.close)

    async def grade(self, ref: TaskRef, verifier: str, workspace: Mapping[str, bytes]) -> Verdict:
        """Return the verdict on a workspace."""
        return await self._grader.grade(ref, verifier, workspace)

    async def close(self) -> None:
        """Release what verifiers hold."""
        await self._stack.aclose()
