"""From rollouts to a comparison."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from attrs import frozen

from longrein.comparison.model import AgentFigures, ComparedPolicy, Comparison, Conclusion, PairedDifference, PassAtK, TaskCount
from longrein.model import OUTCOMES, ModelCall, Rollout
from longrein.rollout.summary import MIN_PAIRS, Cell, t_interval, wilson


@frozen
class _Measure:
    """What a comparison keeps of a rollout: trajectories are long."""

    cell: Cell
    calls: int
    aux: int
    tokens_in: int | None
    tokens_out: int | None
    wall_s: float
    actions: Mapping[str, int]

    @classmethod
    def of(cls, rollout: Rollout) -> _Measure:
        answered = [turn.call for turn in rollout.trajectory if turn.call.error is None]
        return cls(
            cell=Cell.of(rollout),
            calls=len(rollout.trajectory),
            aux=sum(turn.label.label == "aux" for turn in rollout.trajectory),
            tokens_in=_total(call.usage.prompt_tokens or call.prompt_len or None for call in answered),
            tokens_out=_total(_sampled(call) for call in answered),
            wall_s=rollout.session.wall_s,
            actions=Counter(action.kind for action in rollout.actions),
        )


def _sampled(call: ModelCall) -> int | None:
    return len(call.sampled_ids) or call.usage.completion_tokens


def _total(counts: Iterable[int | None]) -> int | None:
    """Return the sum, or None when one of the counts is not known."""
    known = list(counts)
    return None if None in known else sum(count or 0 for count in known)


def compare_rollouts(rollouts: Iterable[Rollout], *, agents: Sequence[str] = (), policies: Sequence[ComparedPolicy] = ()) -> Comparison:
    """Return the figures of each agent and the paired differences; the same rollouts in any order give the same result.

    Args:
        rollouts: read once, one at a time; of a comparison or of any run.
        agents: the order to show them in; others follow by name.
        policies: the order to show them in, with what is known of them; others follow by name.
    """
    groups: dict[tuple[str, str], list[_Measure]] = defaultdict(list)
    with_ids: set[bool] = set()
    for rollout in rollouts:
        groups[rollout.policy, rollout.agent].append(_Measure.of(rollout))
        with_ids |= {bool(turn.call.sampled_ids) for turn in rollout.trajectory if turn.call.reply}
    known = {policy.name: policy for policy in policies}
    names = _in_order(known, {policy for policy, _ in groups})
    order = _in_order(agents, {agent for _, agent in groups})
    figures = tuple(_figures(name, agent, groups[name, agent]) for name in names for agent in order if groups.get((name, agent)))
    pairs = tuple(_pairs(figures))
    token_ids = any(with_ids) if with_ids else None
    return Comparison(
        agents=tuple(order),
        policies=tuple(known.get(name, ComparedPolicy(name)) for name in names),
        figures=figures,
        pairs=pairs,
        token_ids=token_ids,
        notes=tuple(_notes(figures, pairs, token_ids)),
    )


def _in_order(wanted: Iterable[str], found: set[str]) -> list[str]:
    first = [name for name in dict.fromkeys(wanted) if name in found]
    return first + sorted(found - set(first))


def _figures(policy: str, agent: str, measures: Sequence[_Measure]) -> AgentFigures:
    scored = [measure for measure in measures if measure.cell.passed is not None]
    passed = sum(bool(measure.cell.passed) for measure in scored)
    kinds = sorted({kind for measure in scored for kind in measure.actions})
    tasks = _tasks(measures)
    n_calls = sum(measure.calls for measure in scored)
    bounds = wilson(passed, len(scored))
    return AgentFigures(
        policy=policy,
        agent=agent,
        rollouts=len(measures),
        scored=len(scored),
        unscorable=len(measures) - len(scored),
        pass_rate=passed / len(scored) if scored else None,
        interval=(bounds[0], bounds[1]) if bounds else None,
        pass_at=tuple(_pass_at(list(tasks.values()))),
        reward=_mean(measure.cell.reward for measure in scored),
        outcomes=_outcomes(measures),
        unscorable_outcomes=_outcomes(measure for measure in measures if measure.cell.passed is None),
        calls=_mean(measure.calls for measure in scored),
        tokens_in=_mean(measure.tokens_in for measure in scored),
        tokens_out=_mean(measure.tokens_out for measure in scored),
        wall_s=_mean(measure.wall_s for measure in scored),
        actions={kind: fmean(measure.actions.get(kind, 0) for measure in scored) for kind in kinds},
        aux_share=sum(measure.aux for measure in scored) / n_calls if n_calls else None,
        tasks=tasks,
    )


def _outcomes(measures: Iterable[_Measure]) -> dict[str, int]:
    counts = Counter(measure.cell.outcome for measure in measures)
    return {kind: counts[kind] for kind in OUTCOMES if kind in counts}


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _tasks(measures: Sequence[_Measure]) -> dict[str, TaskCount]:
    by_task: dict[str, list[bool | None]] = defaultdict(list)
    for measure in measures:
        by_task[measure.cell.task_id].append(measure.cell.passed)
    return {
        task: TaskCount(passed=passed.count(True), scored=len(passed) - passed.count(None), unscorable=passed.count(None))
        for task, passed in sorted(by_task.items())
    }


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of the chance that one of k samples passes: 1 - C(n-c, k) / C(n, k).

    Args:
        n: samples of the task.
        c: those that passed.
        k: at most n.

    Source: Chen et al., Evaluating Large Language Models Trained on Code, 2021, equation 1.
    """
    if not 1 <= k <= n:
        raise ValueError(f"pass@{k} needs at least {k} samples and k > 0; there are {n}")
    return 1 - math.comb(n - c, k) / math.comb(n, k)


def _pass_at(tasks: Sequence[TaskCount]) -> Iterable[PassAtK]:
    """Yield pass@k for the powers of two up to the most samples of a task, and for that number."""
    most = max((task.scored for task in tasks), default=0)
    for k in sorted({1 << power for power in range(most.bit_length())} | ({most} if most else set())):
        values = [pass_at_k(task.scored, task.passed, k) for task in tasks if task.scored >= k]
        yield PassAtK(k, fmean(values), len(values))


def _pairs(figures: Sequence[AgentFigures]) -> Iterable[PairedDifference]:
    """Yield every pair of agents with the same policy, then every pair of policies with the same agent."""
    for first, second in combinations(figures, 2):
        if first.policy == second.policy:
            yield _pair(first, second, "agents")
    for first, second in combinations(figures, 2):
        if first.agent == second.agent:
            yield _pair(first, second, "policies")


def _pair(first: AgentFigures, second: AgentFigures, between: str) -> PairedDifference:
    deltas = [
        after - before
        for task in first.tasks
        if task in second.tasks
        and (before := first.tasks[task].pass_rate) is not None
        and (after := second.tasks[task].pass_rate) is not None
    ]
    bounds = t_interval(deltas)
    agents = between == "agents"
    return PairedDifference(
        between="agents" if agents else "policies",
        policy=first.policy if agents else "",
        agent="" if agents else first.agent,
        first=first.agent if agents else first.policy,
        second=second.agent if agents else second.policy,
        tasks=len(deltas),
        difference=fmean(deltas) if deltas else None,
        interval=(bounds[0], bounds[1]) if bounds else None,
        conclusion=_conclusion(len(deltas), bounds),
    )


def _conclusion(n_tasks: int, bounds: Sequence[float] | None) -> Conclusion:
    if bounds is None:
        return "too few tasks" if n_tasks else "no common task"
    if bounds[0] <= 0 <= bounds[1]:
        return "not separated"
    return "higher" if bounds[0] > 0 else "lower"


def _notes(figures: Sequence[AgentFigures], pairs: Sequence[PairedDifference], token_ids: bool | None) -> Iterable[str]:
    if token_ids is False:
        yield "The endpoint returned no token ids: these rollouts are for evaluation only, nothing can be trained from them."
    for figure in figures:
        if figure.unscorable:
            kinds = ", ".join(f"{kind} {count}" for kind, count in figure.unscorable_outcomes.items())
            who = f"{figure.agent} with {figure.policy}" if figure.policy else figure.agent
            rest = f"rates and means are over the other {figure.scored}" if figure.scored else "it has no rates"
            yield f"{who}: {figure.unscorable} of {figure.rollouts} rollouts could not be scored ({kinds}); {rest}."
    if any(pair.conclusion == "too few tasks" for pair in pairs):
        yield f"Fewer than {MIN_PAIRS} tasks: too few for an interval, so differences between agents are not judged."
