"""Where sessions and grading run: two calls of plain data, and an implementation for this machine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, cast

from longrein import toolchain
from longrein.agent import AgentAdapter
from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import Config
from longrein.errors import LongreinError
from longrein.model import SessionResult, TaskRef, Verdict
from longrein.options import structure
from longrein.rollout.grading import Grader
from longrein.rollout.lease import Lease
from longrein.rollout.session import SessionRunner
from longrein.rollout.spec import SessionSpec
from longrein.sandbox import choose, runtime_folder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from longrein.plugins import PluginHost
    from longrein.verifier import TaskSet

Started = Callable[[SessionSpec], None]


class Executor(Protocol):
    """What the engine needs of the place where sessions and grading run."""

    version: int
    """The live policy version, as the trainer counts it."""

    @property
    def strangers(self) -> int:
        """Model calls that came without a live session's key and were refused."""
        ...

    def taskset(self, ref: TaskRef) -> TaskSet:
        """Return the task set that `ref` names, in this process."""
        ...

    async def run_session(self, spec: SessionSpec, ref: TaskRef) -> tuple[SessionResult, Verdict | None]:
        """Run a session to its end, and return its environment's verdict where the task has one; trouble is an outcome."""
        ...

    async def grade(self, ref: TaskRef, verifier: str, workspace: Mapping[str, bytes]) -> Verdict:
        """Grade a workspace; trouble is unscorable with its cause."""
        ...


def open_executor(
    config: Config, host: PluginHost, *, endpoint: PolicyEndpoint, training: bool, started: Started | None = None
) -> AbstractAsyncContextManager[Executor]:
    """Return the executor that a config names."""
    if config.executor.name == "ray":
        from longrein.cluster.executor import RayExecutor

        return RayExecutor(config, host, endpoint=endpoint, training=training, started=started)
    return LocalExecutor(config, host, endpoint=endpoint, training=training, started=started)


class LocalExecutor:
    """Runs sessions and grading on this machine, `limits.sessions` at once; an async context manager.

    Args:
        config: the whole config.
        host: the loaded plugins.
        endpoint: the policy server, checked beforehand.
        training: True when calls are to be trained: sampling is pinned and constrained requests are refused.
        started: called when a session begins.
    """

    def __init__(
        self, config: Config, host: PluginHost, *, endpoint: PolicyEndpoint, training: bool, started: Started | None = None
    ) -> None:
        self._config, self._host, self._endpoint, self._training, self._started = config, host, endpoint, training, started
        self._adapters: dict[str, AgentAdapter] = {name: host.agent(name, options) for name, options in config.agents.items()}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        from longrein.capture.server import CaptureServer

        config = self._config
        toolchains = {name: toolchain.find(name, a.toolchain) if a.toolchain else None for name, a in self._adapters.items()}
        backend = choose(config, self._host, training=self._training)
        runtime = self._stack.enter_context(runtime_folder())
        try:
            self._capture = await self._stack.enter_async_context(
                CaptureServer(
                    self._endpoint,
                    sampling=config.train.sampling,
                    training=self._training,
                    open_port=backend.shares_network,
                    max_reply_tokens=config.limits.max_reply_tokens,
                    tools=config.sandbox.tools,
                )
            )
            sandbox = backend(
                limits=config.sandbox.limits,
                capture_port=self._capture.port,
                runtime=runtime,
                options=structure(backend.Options, config.sandbox.options, where="sandbox.options"),
            )
            self._grader = Grader(self._host, runtime, config.verifiers)
            self._stack.callback(self._grader.close)
        except BaseException:
            await self._stack.aclose()
            raise
        self._sessions = SessionRunner(
            config,
            self._host,
            adapters=self._adapters,
            toolchains=toolchains,
            capture=self._capture,
            sandbox=sandbox,
            endpoint=self._endpoint,
            started=self._started,
        )
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    @property
    def version(self) -> int:
        """The live policy version, as the trainer counts it."""
        return self._capture.version

    @version.setter
    def version(self, version: int) -> None:
        self._capture.version = version

    @property
    def strangers(self) -> int:
        """Model calls that came without a live session's key and were refused."""
        return self._capture.strangers

    def taskset(self, ref: TaskRef) -> TaskSet:
        """Return the task set that `ref` names."""
        return self._grader.taskset(ref)

    async def run_session(self, spec: SessionSpec, ref: TaskRef) -> tuple[SessionResult, Verdict | None]:
        """Run a session to its end, in an environment where the task has one; trouble is an outcome."""
        async with self._lease(ref) or nullcontext() as lease:
            session = await self._sessions.run(spec, lease)
            return session, await lease.verdict() if lease and session.outcome.graded else None

    async def grade(self, ref: TaskRef, verifier: str, workspace: Mapping[str, bytes]) -> Verdict:
        """Grade a workspace; trouble is unscorable with its cause."""
        return await self._grader.grade(ref, verifier, workspace)

    def _lease(self, ref: TaskRef) -> Lease | None:
        """Return what will hold the environment of a session, or None where the task has none."""
        try:
            has_environments = cast("type[TaskSet]", self._host.get("taskset", ref.taskset)).has_environments
            return Lease(self._grader.taskset(ref), ref.task_id) if has_environments else None
        except LongreinError:  # grading says what is wrong with the task set
            return None
