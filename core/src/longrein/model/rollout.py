"""Sessions that ended, rollouts, rewards and the groups that GRPO compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

from attrs import field, frozen

from longrein.model.turn import Trajectory
from longrein.model.verdict import Verdict

OutcomeKind = Literal[
    "completed",
    "timeout",
    "stalled",
    "budget_exceeded",
    "context_overflow",
    "agent_error",
    "llm_error",
    "no_model_calls",
    "sandbox_error",
    "verifier_error",
    "capture_invalid",
    "environment_error",
    "stale",
]
OUTCOMES: tuple[OutcomeKind, ...] = get_args(OutcomeKind)
GRADED: frozenset[str] = frozenset(OUTCOMES[:6])
"""Outcomes that are the policy's doing and are graded as they stand; the others are unscorable."""

ActionKind = Literal["run", "edit", "read", "search", "other"]


@frozen
class Outcome:
    """How a session ended, and why in one sentence."""

    kind: OutcomeKind
    reason: str = ""
    acted: bool = True
    """False when the model gave no reply: such a session is never graded, whatever its kind."""
    ended: OutcomeKind | None = None
    """For a session that could not be graded at its end: how it had ended itself."""

    @property
    def graded(self) -> bool:
        """True when the workspace is graded as it stands."""
        return self.kind in GRADED and self.acted


@frozen
class Action:
    """Something the agent did in its workspace, in words that serve every agent."""

    kind: ActionKind
    name: str = ""
    detail: str = ""


@frozen
class Finding:
    """Something a person should know: a plugin that raised, a capability that did not hold."""

    source: str
    message: str


@frozen
class SessionResult:
    """What one agent process left behind. Plain data: it crosses process and machine borders."""

    session_id: str
    agent: str
    outcome: Outcome
    trajectory: Trajectory
    exit_code: int | None = None
    stdout: str = ""
    """Tail of standard output (bounded); untrusted."""
    stderr: str = ""
    workspace: Mapping[str, bytes] = field(factory=dict, repr=False)
    """Path below the workspace to content: the final files, size-capped."""
    wall_s: float = 0.0
    sandbox: Mapping[str, Any] = field(factory=dict)
    """Backend, interpreter and limits in force."""
    findings: tuple[Finding, ...] = ()


@frozen
class Reward:
    """A number for the trainer, or None when there is none; `parts` add up to what `value` was made from."""

    value: float | None
    parts: Mapping[str, float] = field(factory=dict)
    reason: str = ""
    decided_by: str = ""
    details: Mapping[str, Any] = field(factory=dict)
    """What the reward wants in the record, as JSON takes it; numbers become metrics."""


@frozen
class Rollout:
    """One session with its grade and reward. Holds the task's id and digest, never its hidden data."""

    id: str
    group_id: str
    agent: str
    taskset: str
    task_id: str
    task_digest: str
    sample: int
    seed: int
    session: SessionResult
    verdict: Verdict
    actions: tuple[Action, ...] = ()
    reward: Reward = Reward(None)
    phase: str = "run"
    """run, train, or eval:<step>."""
    policy: str = ""
    """Name of the policy that answered, in a comparison of several."""

    @property
    def outcome(self) -> Outcome:
        """The session's outcome."""
        return self.session.outcome

    @property
    def trajectory(self) -> Trajectory:
        """The session's turns."""
        return self.session.trajectory


@frozen
class Group:
    """The rollouts of one (task, agent) that GRPO compares; of several agents where the config mixes them."""

    id: str
    agent: str
    """Empty where the group has several agents."""
    taskset: str
    task_id: str
    rollouts: tuple[Rollout, ...]
