"""The executor that spreads sessions and grading over a Ray cluster."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from attrs import define, evolve

from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import Config
from longrein.errors import MissingError, RunStopped
from longrein.model import Finding, Outcome, SessionResult, TaskRef, Trajectory, Verdict
from longrein.rollout.changes import Changes
from longrein.rollout.executor import Started
from longrein.rollout.grading import Tasksets
from longrein.rollout.spec import SessionSpec
from longrein.sandbox import runtime_folder

if TYPE_CHECKING:
    from longrein.plugins import PluginHost
    from longrein.verifier import TaskSet

log = logging.getLogger(__name__)
NO_NODE_S = 600.0
"""How long a session waits for a node when none is left, before the run stops: an autoscaler needs minutes."""
HEAD_S, HEAD_TRIES = 5.0, 4
"""How often the cluster's head is looked at, and how often it may not answer. Ray gives up after a minute."""
TRIES = 2
"""A session that is lost with its node is made again once."""


@define(eq=False)
class _Member:
    """A worker as the head sees it."""

    handle: Any
    slots: int
    busy: int = 0
    up: bool = False
    node: str = ""

    @property
    def free(self) -> int:
        return self.slots - self.busy if self.up else 0


class RayExecutor:
    """Runs sessions in workers on the nodes of a Ray cluster; an async context manager.

    Each worker has its own capture endpoint and sandboxes. New sessions go to the worker with most free slots. A session whose worker
    dies is made again once, elsewhere; the worker comes back where Ray finds room for it.

    Args:
        config: the whole config.
        host: the loaded plugins.
        endpoint: the policy server; every node must reach it.
        training: True when calls are to be trained.
        started: called when a session is handed to a worker.

    Raises:
        MissingError: Ray is not installed.
        RunStopped: a worker cannot be opened, the cluster's head is gone, or no node has run anything for ten minutes.
    """

    def __init__(
        self, config: Config, host: PluginHost, *, endpoint: PolicyEndpoint, training: bool, started: Started | None = None
    ) -> None:
        self._config, self._host, self._endpoint, self._training, self._started = config, host, endpoint, training, started
        self._version = self.strangers = 0
        self.lost = 0
        """Sessions that were lost with their worker."""
        self._broken: str | None = None
        """Why no session can be run any more."""
        self._stack = ExitStack()
        self._changed = Changes()
        self._head_lost = asyncio.Event()
        self._waking: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        ray = _ray()
        wants, limits = self._config.executor, self._config.limits
        self._ours = not ray.is_initialized()
        if self._ours:
            given: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
            if wants.address is None:  # Ray keeps logs and sockets of a cluster that it starts: they go with the run
                given["_temp_dir"] = str(self._stack.enter_context(runtime_folder()))
            address = wants.address or "local"
            await asyncio.to_thread(lambda: ray.init(address=address, namespace=f"longrein-{os.getpid()}", **given))
        from longrein.cluster.workers import GradeWorker, SessionWorker, Share

        self._tasksets = Tasksets(self._host)
        share = Share(self._config, self._host.folder, self._endpoint, self._training, 0)
        n_workers = min(wants.workers, limits.sessions)
        self._members: list[_Member] = []
        for number in range(n_workers):
            slots = limits.sessions // n_workers + (number < limits.sessions % n_workers)
            actor = ray.remote(SessionWorker).options(
                num_cpus=slots * wants.session_cpus,
                memory=slots * wants.session_memory_mb << 20,
                resources={name: float(amount) for name, amount in wants.labels.items()} or None,
                scheduling_strategy="SPREAD",
                max_restarts=-1,
                max_concurrency=slots + 8,
            )
            self._members.append(_Member(actor.remote(evolve(share, slots=slots)), slots))
        grading = ray.remote(GradeWorker).options(
            num_cpus=wants.grader_cpus, scheduling_strategy="SPREAD", max_restarts=-1, max_task_retries=TRIES, max_concurrency=8
        )
        self._graders = [grading.remote(share) for _ in range(wants.graders)]
        self._grades = [0] * wants.graders
        for member in self._members:
            self._wake(member)
        watching = asyncio.ensure_future(self._watch_head(ray.get_runtime_context().gcs_address))
        self._waking.add(watching)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        import ray

        for task in self._waking:
            task.cancel()
        await asyncio.gather(*self._waking, return_exceptions=True)
        if self._head_lost.is_set():  # Ray's own calls would wait for it, and end this process
            self._tasksets.close()
            self._stack.close()
            return
        handles = [*(member.handle for member in self._members if member.up), *self._graders]
        try:
            async with asyncio.timeout(20):
                await asyncio.gather(*(handle.close.remote() for handle in handles), return_exceptions=True)
        except TimeoutError:
            log.warning("a worker did not close within 20 s; it is killed")
        for handle in (*(member.handle for member in self._members), *self._graders):
            ray.kill(handle)
        self._tasksets.close()
        if self._ours:
            await asyncio.to_thread(ray.shutdown)
        self._stack.close()

    @property
    def version(self) -> int:
        """The live policy version, as the trainer counts it."""
        return self._version

    @version.setter
    def version(self, version: int) -> None:
        self._version = version
        for member in self._members:
            if member.up:  # one that comes back hears it with its next session
                member.handle.set_version.remote(version)

    def taskset(self, ref: TaskRef) -> TaskSet:
        """Return the task set that `ref` names, in this process."""
        return self._tasksets.of(ref)

    async def run_session(self, spec: SessionSpec, ref: TaskRef) -> tuple[SessionResult, Verdict | None]:
        """Run a session on some node; one that is lost with its worker is made again once, then it is a sandbox error."""
        from ray.exceptions import RayError

        findings: list[Finding] = []
        for _ in range(TRIES):
            member = await self._member()
            member.busy += 1
            if self._started:
                self._started(spec)
            call = member.handle.run_session.remote(spec, ref, self._version)
            try:
                session, verdict = await self._answer(call)
                return evolve(session, findings=(*session.findings, *findings)), verdict
            except RayError as error:
                self.lost += 1
                what = f"lost with the worker on node {member.node[:8]}: {type(error).__name__}"
                findings.append(Finding("ray", f"{what}; the session was made again"))
                log.warning("session %s was %s", spec.id, what)
                member.up = False
                self._wake(member)
            except asyncio.CancelledError:
                import ray

                ray.cancel(call)
                raise
            finally:
                member.busy -= 1
                self._changed.notify()
        outcome = Outcome("sandbox_error", f"{what}, twice")
        return SessionResult(spec.id, spec.agent, outcome, Trajectory(), findings=tuple(findings[:1])), None

    async def grade(self, ref: TaskRef, verifier: str, workspace: Mapping[str, bytes]) -> Verdict:
        """Grade on the least busy grading worker; one that is lost is asked again after its restart."""
        from ray.exceptions import RayError

        number = min(range(len(self._graders)), key=self._grades.__getitem__)
        self._grades[number] += 1
        try:
            verdict: Verdict = await self._answer(self._graders[number].grade.remote(ref, verifier, workspace))
            return verdict
        except RayError as error:
            return Verdict.unscorable(f"the grading worker was lost {TRIES + 1} times: {type(error).__name__}")
        finally:
            self._grades[number] -= 1

    async def _answer(self, call: Any) -> Any:
        """Return what a call gives, or stop when the cluster's head is lost meanwhile."""
        answer, lost = asyncio.ensure_future(_awaited(call)), asyncio.ensure_future(self._head_lost.wait())
        try:
            await asyncio.wait({answer, lost}, return_when=asyncio.FIRST_COMPLETED)
            if answer.done():
                return answer.result()
            raise RunStopped(self._broken)
        finally:
            answer.cancel()
            lost.cancel()

    async def _watch_head(self, address: str) -> None:
        """Find out that the cluster's head is gone before Ray does, which would end this process without a word of ours."""
        host, _, port = address.rpartition(":")
        n_failed = 0
        while n_failed < HEAD_TRIES:
            await asyncio.sleep(HEAD_S)
            try:
                async with asyncio.timeout(HEAD_S):
                    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
                writer.close()
                n_failed = 0
            except OSError:  # a timeout too
                n_failed += 1
        self._broken = (
            f"the head of the Ray cluster at {address} is gone: it did not answer for {HEAD_TRIES * HEAD_S:g} s. What was done is "
            "in the run folder. On another cluster (--set executor.address=...), a training goes on with longrein train --resume RUN"
        )
        self._head_lost.set()
        self._changed.notify()

    async def _member(self) -> _Member:
        """Return the worker with most free slots, waiting for one."""
        try:
            async with asyncio.timeout(NO_NODE_S) as limit:
                while True:
                    if self._broken:
                        raise RunStopped(self._broken)
                    best = max(self._members, key=lambda member: member.free)
                    if best.free > 0:
                        return best
                    if any(member.up for member in self._members):
                        limit.reschedule(asyncio.get_running_loop().time() + NO_NODE_S)
                    await self._changed.wait()
        except TimeoutError:
            raise RunStopped(
                f"no node of the Ray cluster can run sessions: {len(self._members)} workers wait for "
                f"{self._members[0].slots * self._config.executor.session_cpus:g} CPUs each. Add nodes, or lower [limits] sessions or "
                "[executor] session_cpus; --resume goes on"
            ) from None

    def _wake(self, member: _Member) -> None:
        """Let a worker take sessions as soon as it answers."""
        task = asyncio.ensure_future(self._awake(member))
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _awake(self, member: _Member) -> None:
        from ray.exceptions import RayActorError, RayTaskError

        while True:
            try:
                member.node = await member.handle.ready.remote()
            except RayTaskError as error:  # a missing sandbox or program, a plugin that fails
                self._broken = f"a session worker cannot start: {error.cause}"
                self._changed.notify()
                return
            except RayActorError:
                await asyncio.sleep(1)
                continue
            member.up = True
            self._changed.notify()
            return


async def _awaited(call: Any) -> Any:
    return await call


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingError("[executor] name = \"ray\" needs Ray; run: pip install 'longrein[ray]'") from error
    return ray
