"""The reward "ruler"."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, ClassVar

from attrs import evolve, frozen

from longrein.errors import ConfigError
from longrein.model import Group, Reward, Rollout
from longrein.reward import RewardFunction
from longrein.reward.builtin import Binary, Fraction, Shaped
from longrein_ruler.agreement import agreement
from longrein_ruler.blend import blend
from longrein_ruler.errors import JudgeError
from longrein_ruler.judge import Judge, Judgement
from longrein_ruler.options import RulerOptions
from longrein_ruler.prompt import aliases, orders, prompt, read_rubric
from longrein_ruler.traces import Trace, traces

VERIFIERS: Mapping[str, type[Binary | Fraction | Shaped]] = {cls.name: cls for cls in (Binary, Fraction, Shaped)}
ALIKE = 0.5
"""Score of rollouts that all read the same: nobody is asked."""


@frozen
class _Question:
    """One pass over a group: the messages and who is shown where."""

    messages: list[dict[str, Any]]
    names: Mapping[str, str]
    """Trace key to the id that the judge is shown."""
    order: tuple[str, ...]
    """Trace keys as they are shown."""


class Ruler(RewardFunction):
    """Scores the rollouts of a group against one another by an LLM judge."""

    name: ClassVar[str] = "ruler"
    Options: ClassVar[type] = RulerOptions
    options: RulerOptions

    def __init__(self, options: RulerOptions) -> None:
        super().__init__(options)
        key = os.environ.get(options.api_key_env, "").strip() if options.api_key_env else None
        if options.api_key_env and not key:
            raise ConfigError(f"[reward.options] api_key_env names {options.api_key_env!r}, which is not set in the environment")
        self._rubric = read_rubric(options.rubric, options.mode)
        self._judge = Judge(options, key)
        self._verifier = VERIFIERS[options.verifier]()

    async def compute(self, rollout: Rollout) -> Reward:
        """Return the verifier's reward, which `score_group` blends; in mode "absolute" the judge's score of this one, blended."""
        if self.options.mode == "absolute":
            return (await self._rewards([rollout], {rollout.id: self._verifier.compute(rollout)}))[rollout.id]
        if self.options.blend == "judge":
            return Reward(None, reason='a relative score needs a group of rollouts; mode = "absolute" scores one')
        return self._verifier.compute(rollout)

    async def score_group(self, group: Group, rewards: Mapping[str, Reward]) -> Mapping[str, Reward] | None:
        """Return the blended rewards of a group, or a reason for none; None in mode "absolute"."""
        if self.options.mode == "absolute":
            return None
        scored = [rollout for rollout in group.rollouts if self._can_be_scored(rollout, rewards[rollout.id])]
        if len(scored) < 2:
            reason = f"a relative score needs two rollouts of the group, {len(scored)} of {len(group.rollouts)} can be scored"
            return {**rewards, **{rollout.id: Reward(None, reason=reason) for rollout in scored}}
        return {**rewards, **await self._rewards(scored, rewards)}

    def _can_be_scored(self, rollout: Rollout, reward: Reward) -> bool:
        graded = rollout.outcome.graded and rollout.verdict.status != "unscorable"
        return graded and (reward.value is not None or self.options.blend == "judge")

    async def _rewards(self, rollouts: Sequence[Rollout], before: Mapping[str, Reward]) -> dict[str, Reward]:
        try:
            judged = await self._judged(rollouts)
        except JudgeError as error:
            reason = f"unscorable, the judge gave no score ({error.kind}): {error}"
            return {rollout.id: Reward(None, reason=reason, details={"failure": error.kind}) for rollout in rollouts}
        made = {}
        for rollout in rollouts:
            score = judged[rollout.id]
            assert score.value is not None
            passed = rollout.verdict.status == "passed"
            mixed = blend(self.options.blend, self.options.weight, judge=score.value, verifier=before[rollout.id], passed=passed)
            made[rollout.id] = evolve(score, value=mixed.value, parts=mixed.parts)
        return made

    async def _judged(self, rollouts: Sequence[Rollout]) -> dict[str, Reward]:
        """Return the judge's score of each rollout by id, as a reward with what the record should have."""
        found, questions = await asyncio.to_thread(self._questions, rollouts)
        if not questions:
            alike = Reward(ALIKE, reason="all rollouts of the group read the same", details={"model": self.options.model, "calls": 0})
            return {rollout.id: alike for rollout in rollouts}
        passes = [await self._judge.score(q.messages, [q.names[key] for key in q.order]) for q in questions]
        lists = [[judgement.scores[q.names[trace.key]].score for trace in found] for q, judgement in zip(questions, passes, strict=True)]
        shared = self._details(passes, lists)
        made: dict[str, Reward] = {}
        for index, trace in enumerate(found):
            each = [scores[index] for scores in lists]
            details = {**shared, "scores": each, "positions": [q.order.index(trace.key) for q in questions]}
            said = passes[0].scores[questions[0].names[trace.key]].explanation
            made |= dict.fromkeys(trace.rollout_ids, Reward(fmean(each), reason=said, details=details))
        return made

    def _questions(self, rollouts: Sequence[Rollout]) -> tuple[list[Trace], list[_Question]]:
        options, absolute = self.options, self.options.mode == "absolute"
        shared, found = traces(rollouts)
        if len(found) == 1 and not absolute:
            return found, []
        names = aliases(found, options.seed)
        made = []
        for order in orders(found, options.seed, options.passes):
            shown = [(names[trace.key], trace) for trace in order]
            messages = prompt(shared, shown, rubric=self._rubric, absolute=absolute, n_tokens=options.prompt_tokens)
            made.append(_Question(messages, names, tuple(trace.key for trace in order)))
        return found, made

    def _details(self, passes: Sequence[Judgement], lists: Sequence[Sequence[float]]) -> dict[str, Any]:
        """Return what the rewards of a group have in common; `calls` and `cost` are those of the whole group, now."""
        details = {
            "model": self.options.model,
            "answers": [judgement.key for judgement in passes],
            "calls": sum(judgement.calls for judgement in passes),
            "cost": sum(judgement.cost for judgement in passes),
        }
        agreed = agreement(*lists) if len(lists) == 2 else None
        return details if agreed is None else {**details, "agreement": agreed}
