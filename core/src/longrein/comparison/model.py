"""What a comparison found, as plain data: figures of each agent, and paired differences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import field, frozen

Conclusion = Literal["higher", "lower", "not separated", "too few tasks", "no common task"]


@frozen
class TaskCount:
    """The rollouts of one agent on one task."""

    passed: int
    scored: int
    unscorable: int

    @property
    def pass_rate(self) -> float | None:
        """Share of the scored rollouts that passed; None when none was scored."""
        return self.passed / self.scored if self.scored else None


@frozen
class PassAtK:
    """The chance that one of k samples of a task passes, averaged over tasks."""

    k: int
    value: float
    tasks: int
    """Tasks with at least k scored samples; the others are left out."""


@frozen
class AgentFigures:
    """One agent with one policy. Rates and means are over scored rollouts; unscorable ones are counted beside them."""

    policy: str
    """Name of the policy; empty where a comparison has only one."""
    agent: str
    rollouts: int
    scored: int
    unscorable: int
    pass_rate: float | None
    """None when no rollout was scored, like all means below."""
    interval: tuple[float, float] | None
    """95 % Wilson interval of `pass_rate`."""
    pass_at: tuple[PassAtK, ...]
    reward: float | None
    """Mean over the rollouts that have one."""
    outcomes: Mapping[str, int]
    """Of all rollouts, by kind."""
    unscorable_outcomes: Mapping[str, int]
    """Of the unscorable ones among them."""
    calls: float | None
    """Model calls of a rollout."""
    tokens_in: float | None
    """Prompt tokens of a rollout, over all its calls; None when the engine does not report them."""
    tokens_out: float | None
    """Sampled tokens of a rollout."""
    wall_s: float | None
    """Seconds from a session's start to its end; it holds the waiting for a server that other sessions share."""
    actions: Mapping[str, float]
    """Actions of a rollout, by kind."""
    aux_share: float | None
    """Share of the model calls that were side work (label aux); None without a call."""
    tasks: Mapping[str, TaskCount]
    """By task id."""


@frozen
class PairedDifference:
    """Pass rate of `second` minus that of `first`, task by task."""

    between: Literal["agents", "policies"]
    policy: str
    """The policy of both agents; empty where two policies are compared, or where there is only one."""
    agent: str
    """The agent under which two policies are compared; empty where two agents are compared."""
    first: str
    second: str
    tasks: int
    """Tasks on which both have a scored rollout."""
    difference: float | None
    """Mean over these tasks of the difference of the two pass rates."""
    interval: tuple[float, float] | None
    """95 % t interval over the task differences; None under six tasks."""
    conclusion: Conclusion
    """What the data says about `second`: higher or lower when the interval leaves out zero."""


@frozen
class ComparedPolicy:
    """One of the policies compared."""

    name: str
    trained_with: tuple[str, ...] | None = None
    """Agents that it was trained through; empty for an untrained one, None when that is not known."""


@frozen
class Comparison:
    """Agents on the same tasks with the same policy, or with each of several."""

    agents: tuple[str, ...]
    policies: tuple[ComparedPolicy, ...]
    """One with an empty name where only one policy was compared."""
    figures: tuple[AgentFigures, ...]
    """One for each policy and agent: policy by policy, agents in the order of `agents`."""
    pairs: tuple[PairedDifference, ...]
    token_ids: bool | None
    """False when the endpoint returned replies without token ids: such rollouts are for evaluation only; None without a reply."""
    notes: tuple[str, ...] = field(default=())
    """What a reader must know, in whole sentences."""

    def of(self, agent: str, policy: str = "") -> AgentFigures:
        """Return the figures of an agent with a policy; KeyError when there are none."""
        for figures in self.figures:
            if (figures.agent, figures.policy) == (agent, policy):
                return figures
        raise KeyError((agent, policy))
