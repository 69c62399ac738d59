"""The engine: makes rollouts (session, grade, actions, reward, record) for `run`, `compare` and `train` alike."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from attrs import evolve

from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import Config
from longrein.errors import RunStopped
from longrein.model import Action, Finding, Group, Outcome, Rollout, SessionResult, Verdict
from longrein.rollout.executor import open_executor
from longrein.rollout.spec import RolloutSpec, SessionSpec
from longrein.turns import InvalidGuard, within_budget

if TYPE_CHECKING:
    from longrein.plugins import PluginHost
    from longrein.rollout.record import RunRecorder

WINDOW = 20
"""Rollouts over which the share of unscorable ones is taken."""
FIRST = 4
"""A run whose first so many rollouts are all unscorable stops at once."""
NO_ENDPOINT = PolicyEndpoint(url="http://127.0.0.1:9/v1", model="none", level="text")
"""Stands in where no agent calls a model."""


class Engine:
    """Makes rollouts; use as an async context manager.

    Args:
        config: the whole config.
        host: the loaded plugins.
        endpoint: the policy server, checked beforehand; None when no agent of the config calls a model.
        recorder: where rollouts are written; None keeps them in memory only.
        training: True when calls are to be trained: sampling is pinned and constrained requests are refused.
        started: called when a session begins.
    """

    def __init__(
        self,
        config: Config,
        host: PluginHost,
        *,
        endpoint: PolicyEndpoint | None,
        recorder: RunRecorder | None = None,
        training: bool = False,
        started: Callable[[SessionSpec], None] | None = None,
    ) -> None:
        self._config, self._host, self._recorder, self._training, self._started = config, host, recorder, training, started
        self._endpoint = endpoint or NO_ENDPOINT
        self.adapters = {name: host.agent(name, options) for name, options in config.agents.items()}
        self._reward = host.reward(config.reward.name, config.reward.options)
        self._recent: deque[bool] = deque(maxlen=WINDOW)
        self._stale: deque[bool] = deque(maxlen=WINDOW)
        self._first_reason: str | None = None
        self._n_rollouts = 0
        self._invalid = InvalidGuard()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        opened = open_executor(self._config, self._host, endpoint=self._endpoint, training=self._training, started=self._started)
        self._executor = await self._stack.enter_async_context(opened)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._stack.aclose()

    @property
    def version(self) -> int:
        """The live policy version, as the trainer counts it."""
        return self._executor.version

    @version.setter
    def version(self, version: int) -> None:
        self._executor.version = version

    @property
    def strangers(self) -> int:
        """Model calls that came without a live session's key and were refused."""
        return self._executor.strangers

    async def rollout(self, spec: RolloutSpec, sampled: Callable[[], None] | None = None) -> Rollout:
        """Make one rollout and record it. A bad session is data.

        Args:
            spec: what to make.
            sampled: called when the session has ended and only its grade is awaited.

        Raises:
            RunStopped: too many rollouts cannot be scored, or too many turns cannot be trained.
        """
        adapter, findings = self.adapters[spec.agent], list[Finding]()
        solution = None
        if adapter.capabilities.needs_solution:
            solution = await asyncio.to_thread(self._executor.taskset(spec.task.ref).solution, spec.task.ref.task_id)
        lag = self._config.train.max_staleness if spec.phase == "train" else None
        wanted = SessionSpec(spec.id, spec.agent, spec.task.public, spec.seed, solution, lag)
        session, verdict = await self._executor.run_session(wanted, spec.task.ref)
        if sampled:
            sampled()
        if spec.phase == "train":  # the record shows the labels that the rows have
            session = evolve(session, trajectory=within_budget(session.trajectory, self._config.train.token_budget))
        session, verdict = await self._grade(spec, session, verdict)
        actions = self._actions(spec.agent, session, findings)
        rollout = Rollout(
            id=spec.id,
            group_id=spec.group_id,
            agent=spec.agent,
            taskset=spec.task.taskset,
            task_id=spec.task.id,
            task_digest=spec.task.digest,
            sample=spec.sample,
            seed=spec.seed,
            session=session,
            verdict=verdict,
            actions=actions,
            phase=spec.phase,
            policy=spec.policy,
        )
        reward = await self._host.compute_reward(rollout, self._reward, findings)
        rollout = evolve(rollout, reward=reward)
        await self._host.rollout_finished(rollout, findings)
        rollout = evolve(rollout, session=evolve(session, findings=(*session.findings, *findings)))
        if self._recorder:
            self._recorder.task(spec.task)
            self._recorder.rollout(rollout)
        self._guard(rollout)
        return rollout

    async def _grade(self, spec: RolloutSpec, session: SessionResult, given: Verdict | None) -> tuple[SessionResult, Verdict]:
        """Return the session and its verdict; `given` is that of its environment."""
        if not session.outcome.graded:
            return session, Verdict.unscorable(f"{session.outcome.kind}: {session.outcome.reason}")
        verdict = given or await self._executor.grade(spec.task.ref, spec.task.verifier, session.workspace)
        if verdict.status == "unscorable":
            ended = session.outcome
            error = Outcome("environment_error" if given else "verifier_error", verdict.reason, acted=ended.acted, ended=ended.kind)
            session = evolve(session, outcome=error)
        return session, verdict

    def _actions(self, agent: str, session: SessionResult, findings: list[Finding]) -> tuple[Action, ...]:
        try:
            return tuple(self.adapters[agent].actions(session))
        except Exception as error:  # an adapter is plugin code
            findings.append(Finding(f"agent {agent}", f"actions raised {type(error).__name__}: {error}"))
            return ()

    async def score_group(self, group: Group) -> Group:
        """Return the group with the final rewards, after whatever compares rollouts; findings stay with the first rollout."""
        findings: list[Finding] = []
        rewards = await self._host.score_group(group, {r.id: r.reward for r in group.rollouts}, self._reward, findings)
        rollouts = [evolve(r, reward=rewards[r.id]) for r in group.rollouts]
        if findings:
            first = rollouts[0]
            rollouts[0] = evolve(first, session=evolve(first.session, findings=(*first.session.findings, *findings)))
        return evolve(group, rollouts=tuple(rollouts))

    def _guard(self, rollout: Rollout) -> None:
        self._stale.append(rollout.outcome.kind == "stale")
        if len(self._stale) == WINDOW and all(self._stale):
            raise RunStopped(
                f"the last {WINDOW} sessions all became too old to be trained: {rollout.outcome.reason}. They take longer than "
                "max_staleness steps: raise [train] max_staleness or rows_per_step, or lower [limits] timeout_s"
            )
        if rollout.outcome.kind == "stale":  # nobody's fault, and not the task's
            return
        unscorable = rollout.verdict.status == "unscorable"
        self._recent.append(unscorable)
        self._n_rollouts += 1
        if unscorable and self._first_reason is None:
            self._first_reason = f"{rollout.id}: {rollout.outcome.kind}: {rollout.outcome.reason}"
        if self._n_rollouts >= FIRST and all(self._recent) and len(self._recent) == self._n_rollouts:
            raise RunStopped(f"the first {self._n_rollouts} rollouts could not be scored; the first was {self._first_reason}")
        share = sum(self._recent) / len(self._recent)
        if len(self._recent) == WINDOW and share > self._config.limits.unscorable_share:
            raise RunStopped(
                f"{share:.0%} of the last {WINDOW} rollouts could not be scored (limit {self._config.limits.unscorable_share:.0%}); "
                f"the first was {self._first_reason}"
            )
        self._invalid.check(rollout.trajectory)
