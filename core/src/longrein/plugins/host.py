"""The host: loads plugins, makes what a config names, and asks overrides one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import attrs
import pluggy

from longrein import hookspecs
from longrein.agent import AgentAdapter, LaunchPlan, Session
from longrein.errors import LongreinError, PluginError, UnknownNameError
from longrein.model import Finding, Group, Reward, Rollout, Trajectory, Turn, TurnLabel
from longrein.options import structure
from longrein.plugins import answers, discover
from longrein.plugins.guard import ESCAPES, BadAnswer, ask, ask_async, describe, note
from longrein.plugins.info import PluginInfo
from longrein.plugins.override import Override, overrides
from longrein.plugins.registry import Registry, collect
from longrein.reward import RewardFunction
from longrein.sandbox import Sandbox
from longrein.verifier import TaskSet, Verifier


@attrs.frozen
class PluginHost:
    """All plugins of a process. Make it with `PluginHost.load`."""

    plugins: tuple[PluginInfo, ...]
    use: tuple[str, ...]
    """What the config names, in order, files by their whole path: children and resumed runs load the same with it."""
    folder: Path
    """The config's folder."""
    _registry: Registry
    _overrides: Mapping[str, Sequence[Override]]
    """Hook to those that take part, in order."""

    @classmethod
    def load(cls, use: Sequence[str] = (), *, folder: Path = Path()) -> PluginHost:
        """Load every installed plugin and those that `use` names.

        Args:
            use: packages, modules and ./files whose overrides take part, in this order.
            folder: the config's folder, where files are looked up from.

        Raises:
            PluginError: a plugin that `use` names is missing, blocked or failed. Others are only listed.
        """
        manager = pluggy.PluginManager(hookspecs.PROJECT)
        manager.add_hookspecs(hookspecs)
        infos = discover.installed(manager)
        words = [discover.resolved(word, folder) for word in use]
        for word in words:
            if not any(info.answers_to(word) for info in infos):
                infos.append(discover.named(manager, word, infos))
        registry, infos = collect(manager, infos)
        active = _active(words, infos)
        infos = [attrs.evolve(info, active=info.name in active) for info in infos]
        return cls(tuple(infos), tuple(words), folder, registry, {hook: overrides(manager, hook, active) for hook in hookspecs.OVERRIDES})

    def with_classes(self, classes: Mapping[tuple[str, str], type]) -> PluginHost:
        """Return a host that answers with these classes, by kind and name, before what is registered; the conformance kit's way in."""
        return attrs.evolve(self, registry=attrs.evolve(self._registry, classes={**self._registry.classes, **classes}))

    def names(self, kind: str) -> list[str]:
        """Return the registered names of a kind: agent, verifier, taskset, reward or sandbox."""
        return self._registry.names(kind)

    def get(self, kind: str, name: str) -> type:
        """Return the class registered under a name.

        Raises:
            PluginError: its plugin is blocked or failed, or two plugins give the name.
            UnknownNameError: nobody registers it.
        """
        key = (kind, name)
        if key in self._registry.classes:
            return self._registry.classes[key]
        if key in self._registry.lost:
            raise PluginError(f"{kind} {name!r} cannot be used: {self._registry.lost[key]}")
        broken = [info for info in self.plugins if info.state != "ok"]
        for info in broken:
            if info.answers_to(name) or info.answers_to(f"longrein-{name}"):
                raise PluginError(f"{kind} {name!r} cannot be used: plugin {info} is {info.state}: {info.reason}")
        without = "".join(f"; plugin {info} is {info.state}: {info.reason}" for info in broken)
        hint = f"Install the package that registers it; `longrein plugins` lists what is there{without}"
        raise UnknownNameError(kind, name, self.names(kind), hint=hint)

    def agent(self, name: str, options: Mapping[str, Any] = {}) -> AgentAdapter:
        """Return an agent with the options of its config section."""
        return cast("AgentAdapter", self._make("agent", name, options, f"[agents.{name}]"))

    def agent_class(self, name: str) -> type[AgentAdapter]:
        """Return an agent's class: what it declares, before its options are known."""
        return self.get("agent", name)

    def verifier(self, name: str, options: Mapping[str, Any] = {}) -> Verifier:
        """Return a verifier."""
        return cast("Verifier", self._make("verifier", name, options, f"options of verifier {name}"))

    def taskset(self, name: str, options: Mapping[str, Any] = {}, *, where: str = "[taskset.options]") -> TaskSet:
        """Return a task set; `where` is its config section, for messages."""
        return cast("TaskSet", self._make("taskset", name, options, where))

    def reward(self, name: str, options: Mapping[str, Any] = {}) -> RewardFunction:
        """Return a reward."""
        return cast("RewardFunction", self._make("reward", name, options, "[reward.options]"))

    def sandbox(self, name: str) -> type[Sandbox]:
        """Return a sandbox class."""
        return self.get("sandbox", name)

    def launch(self, agent: AgentAdapter, session: Session, findings: list[Finding]) -> LaunchPlan:
        """Return how to launch `agent`: the first override that answers decides, else the adapter.

        Raises:
            PluginError: the adapter raised or gave no sound plan; a LongreinError of its own comes through as it is.
        """
        for override in self._overrides["longrein_launch_agent"]:
            plan = override.ask(answers.launch_plan, findings, agent=agent, session=session)
            if plan is not None:
                return plan
        try:
            plan = answers.launch_plan(agent.launch(session))
        except LongreinError:
            raise
        except BadAnswer as error:
            raise PluginError(f"agent {agent.name!r}: launch answered {error}") from error
        except ESCAPES as error:
            raise PluginError(f"agent {agent.name!r}: launch raised {describe(error)}") from error
        if plan is None:
            raise PluginError(f"agent {agent.name!r}: launch answered None; it takes a LaunchPlan")
        return plan

    def classify(
        self, adapter: AgentAdapter, turn: Turn, trajectory: Trajectory, proposal: TurnLabel, findings: list[Finding]
    ) -> tuple[TurnLabel, str]:
        """Return the label of a turn and who decided it.

        The adapter may replace the structural `proposal`; the first override that answers replaces either. Nobody is
        asked about an invalid turn.
        """
        if proposal.label == "invalid":
            return proposal, "capture"
        decided_by = "structure"
        source = f"agent:{adapter.name}"
        own = ask(partial(adapter.classify, turn, trajectory), answers.turn_label, source=source, hook="classify", findings=findings)
        if own is not None:
            proposal, decided_by = own, source
        for override in self._overrides["longrein_classify_turn"]:
            label = override.ask(answers.turn_label, findings, turn=turn, trajectory=trajectory, proposal=proposal, agent=adapter)
            if label is not None:
                return label, override.source
        return proposal, decided_by

    async def compute_reward(self, rollout: Rollout, default: RewardFunction, findings: list[Finding]) -> Reward:
        """Return the reward of a rollout: the first override that answers decides, else `default`.

        Nobody is asked about an unscorable rollout: it has no reward.
        """
        if (reason := _unscorable(rollout)) is not None:
            return Reward(None, reason=reason, decided_by="verdict")
        for override in self._overrides["longrein_compute_reward"]:
            reward = await override.ask_async(answers.reward, findings, rollout=rollout)
            if reward is not None:
                return attrs.evolve(reward, decided_by=override.source)
        source, own = f"reward:{default.name}", list[Finding]()
        reward = await ask_async(partial(default.compute, rollout), answers.reward, source=source, hook="compute", findings=own)
        findings.extend(own)
        if reward is None:
            reward = Reward(None, reason=own[0].message if own else "compute answered None")
        return attrs.evolve(reward, decided_by=source)

    async def score_group(
        self, group: Group, rewards: Mapping[str, Reward], default: RewardFunction, findings: list[Finding]
    ) -> Mapping[str, Reward]:
        """Return the final rewards of a group: those of the first override that answers, else of `default`, else `rewards`.

        Overrides are given what `default` made of `rewards`. An answer that does not hold one sound reward for every rollout id, or an
        exception of `default`, makes the whole group unscorable. An unscorable rollout stays without a reward whatever is answered.
        """
        source, own = f"reward:{default.name}", list[Finding]()
        call = partial(default.score_group, group, MappingProxyType(dict(rewards)))
        answer = await ask_async(call, answers.mapping, source=source, hook="score_group", findings=own)
        findings.extend(own)
        if own:
            rewards = _none(group, own[0].message, source)
        elif answer is not None:
            rewards = _scored(group, answer, source, "score_group", findings)
        for override in self._overrides["longrein_score_group"]:
            answer = await override.ask_async(answers.mapping, findings, group=group, rewards=MappingProxyType(dict(rewards)))
            if answer is not None:
                return _scored(group, answer, override.source, override.hook, findings)
        return rewards

    async def rollout_finished(self, rollout: Rollout, findings: list[Finding]) -> None:
        """Tell every observer about a finished rollout."""
        for override in self._overrides["longrein_rollout_finished"]:
            await override.ask_async(answers.anything, findings, rollout=rollout)

    def _make(self, kind: str, name: str, options: Mapping[str, Any], where: str) -> Any:
        cls: Any = self.get(kind, name)
        made = structure(cls.Options, options, where=where)
        try:
            return cls(made)
        except LongreinError:
            raise
        except ESCAPES as error:
            raise PluginError(f"{kind} {name!r} cannot be made: {describe(error)}") from error


def _active(use: Sequence[str], infos: Sequence[PluginInfo]) -> list[str]:
    """Return the names of the plugins that take part, in the order of `use`."""
    active: list[str] = []
    for word in use:
        for info in infos:
            if not info.answers_to(word):
                continue
            if info.state != "ok":
                raise PluginError(f"[plugins] use names {word!r}, but plugin {info} is {info.state}: {info.reason}")
            if info.name not in active:
                active.append(info.name)
    return active


def _unscorable(rollout: Rollout) -> str | None:
    """Return why a rollout cannot have a reward, or None when it can."""
    if not rollout.outcome.graded:
        return f"{rollout.outcome.kind}: {rollout.outcome.reason}"
    if rollout.verdict.status == "unscorable":
        return rollout.verdict.reason or "the verdict is unscorable"
    return None


def _scored(group: Group, answer: dict[Any, Any], source: str, hook: str, findings: list[Finding]) -> Mapping[str, Reward]:
    """Return the rewards of an answer for a group, or none for all when it does not cover the group."""
    try:
        scored = answers.group_rewards(answer, [rollout.id for rollout in group.rollouts])
    except BadAnswer as error:
        reason = f"{hook} answered {error}"
        note(findings, source, reason)
        return _none(group, reason, source)
    return {rollout.id: _final(rollout, scored[rollout.id], source, hook, findings) for rollout in group.rollouts}


def _none(group: Group, reason: str, source: str) -> Mapping[str, Reward]:
    return {rollout.id: Reward(None, reason=f"group is unscorable: {reason}", decided_by=source) for rollout in group.rollouts}


def _final(rollout: Rollout, scored: Reward, source: str, hook: str, findings: list[Finding]) -> Reward:
    reason = _unscorable(rollout)
    if reason is None:
        return attrs.evolve(scored, decided_by=source)
    if scored.value is not None:
        note(findings, source, f"{hook} answered {scored.value} for {rollout.id}, which is unscorable ({reason})")
    return Reward(None, reason=reason, decided_by="verdict")
