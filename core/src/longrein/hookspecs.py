"""The hooks of longrein. Plugins implement them with `longrein.hookimpl`.

Registries (the five `longrein_<plural>()` hooks) are open to every installed package. Overrides take part only when
the config names their package in `[plugins] use`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from longrein.agent import AgentAdapter, LaunchPlan, Session
    from longrein.model import Group, Reward, Rollout, Trajectory, Turn, TurnLabel
    from longrein.reward import RewardFunction
    from longrein.sandbox import Sandbox
    from longrein.verifier import TaskSet, Verifier

PROJECT = "longrein"
"""pluggy project name and entry-point group."""
SDK_VERSION = 1
"""Raised when a hook changes in a way that breaks plugins. A plugin module may state `LONGREIN_SDK = 1`."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def longrein_agents() -> Sequence[type[AgentAdapter]]:
    """Return the agent adapter classes of this package."""
    raise NotImplementedError


@hookspec
def longrein_verifiers() -> Sequence[type[Verifier]]:
    """Return the verifier classes of this package."""
    raise NotImplementedError


@hookspec
def longrein_tasksets() -> Sequence[type[TaskSet]]:
    """Return the task set classes of this package."""
    raise NotImplementedError


@hookspec
def longrein_rewards() -> Sequence[type[RewardFunction]]:
    """Return the reward classes of this package."""
    raise NotImplementedError


@hookspec
def longrein_sandboxes() -> Sequence[type[Sandbox]]:
    """Return the sandbox classes of this package."""
    raise NotImplementedError


@hookspec
def longrein_launch_agent(agent: AgentAdapter, session: Session) -> LaunchPlan | None:
    """Return how to launch `agent`, or None to let the next one decide; the adapter decides last. Must not block."""


@hookspec
def longrein_classify_turn(turn: Turn, trajectory: Trajectory, proposal: TurnLabel, agent: AgentAdapter) -> TurnLabel | None:
    """Return the label of `turn` of a session of `agent`, or None to keep `proposal`. Never asked about invalid turns. Must not block."""


@hookspec
def longrein_compute_reward(rollout: Rollout) -> Reward | None:
    """Return the reward of a graded rollout, or None to let the next one decide; the configured reward decides last."""


@hookspec
def longrein_score_group(group: Group, rewards: Mapping[str, Reward]) -> Mapping[str, Reward] | None:
    """Return a reward for every rollout id of `group` exactly once, or None to keep `rewards`."""


@hookspec
def longrein_rollout_finished(rollout: Rollout) -> None:
    """Observe a finished rollout. An exception becomes a finding and changes nothing."""


REGISTRIES = ("longrein_agents", "longrein_verifiers", "longrein_tasksets", "longrein_rewards", "longrein_sandboxes")
OVERRIDES = (
    "longrein_launch_agent",
    "longrein_classify_turn",
    "longrein_compute_reward",
    "longrein_score_group",
    "longrein_rollout_finished",
)
