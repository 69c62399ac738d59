"""What a comparison says of given rollouts: rates, pass@k, paired differences, and their coverage."""

from __future__ import annotations

import csv
import itertools
import json
import random
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from longrein.comparison import ComparedPolicy, Comparison, compare_rollouts, pass_at_k, read_comparison, write_comparison
from longrein.errors import RecordError
from longrein.model import Action, ModelCall, Outcome, Reward, Rollout, SessionResult, Trajectory, Turn, TurnLabel, Usage, Verdict
from longrein.rollout.summary import t_interval

Column = Sequence[bool | None]
"""Passed, or None where it could not be scored, of each sample of a task."""


def call(label: str = "train", *, n_in: int = 10, n_out: int = 3, ids: bool = True) -> Turn:
    made = ModelCall("c", 0, None, (), 0, [1] * n_out if ids else (), (), Usage(n_in, n_out), reply={"role": "assistant", "content": "x"})
    return Turn(made, TurnLabel(label, "because"), "structure")  # type: ignore[arg-type]


def rollout(
    agent: str, task: str, sample: int, passed: bool | None, *, policy: str = "", turns: Iterable[Turn] = (), wall_s: float = 1.0
) -> Rollout:
    verdict = Verdict.unscorable("x") if passed is None else Verdict("passed" if passed else "failed", float(passed))
    outcome = Outcome("llm_error" if passed is None else "completed")
    session = SessionResult("s", agent, outcome, Trajectory(tuple(turns)), wall_s=wall_s)
    reward = Reward(None if passed is None else float(passed))
    actions = (Action("edit"), Action("run")) if passed else (Action("edit"),)
    return Rollout(
        f"{policy}{agent}{task}.{sample}", "g", agent, "t", task, "d", sample, 0, session, verdict, actions, reward, policy=policy
    )


def table(agent: str, columns: dict[str, Column], policy: str = "") -> list[Rollout]:
    return [rollout(agent, task, i, passed, policy=policy) for task, column in columns.items() for i, passed in enumerate(column)]


def rates(columns: Iterable[float], n: int = 4) -> dict[str, Column]:
    """Return a table whose tasks have these pass rates in `n` samples."""
    return {f"t{i}": [sample < round(rate * n) for sample in range(n)] for i, rate in enumerate(columns)}


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_is_the_share_of_samples_of_size_k_that_hold_a_pass(n: int) -> None:
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        drawn = list(itertools.combinations([True] * c + [False] * (n - c), k))
        assert pass_at_k(n, c, k) == pytest.approx(fmean(any(sample) for sample in drawn))
    with pytest.raises(ValueError, match=f"at least {n + 1} samples"):
        pass_at_k(n, 0, n + 1)


def test_figures_of_an_agent() -> None:
    turns = [call(n_in=10, n_out=3), call("aux", n_in=7, n_out=2), call(n_in=20, n_out=5), call(n_in=30, n_out=6)]
    made = [
        rollout("aider", "a", 0, True, turns=turns, wall_s=4.0),
        rollout("aider", "a", 1, False, wall_s=2.0),
        rollout("aider", "b", 0, False, turns=[call(n_in=3, n_out=1)], wall_s=6.0),
        rollout("aider", "b", 1, None, turns=[call(n_in=999, n_out=999)], wall_s=300.0),
    ]
    figures = compare_rollouts(made).of("aider")
    assert (figures.rollouts, figures.scored, figures.unscorable) == (4, 3, 1)
    assert figures.pass_rate == pytest.approx(1 / 3)
    expected = stats.binomtest(1, 3).proportion_ci(0.95, method="wilson")
    assert figures.interval == pytest.approx((expected.low, expected.high))
    assert [(item.k, item.value, item.tasks) for item in figures.pass_at] == [(1, 0.25, 2), (2, 1.0, 1)]
    assert (figures.calls, figures.wall_s, figures.reward) == (pytest.approx(5 / 3), 4.0, pytest.approx(1 / 3))
    assert (figures.tokens_in, figures.tokens_out) == (pytest.approx(70 / 3), pytest.approx(17 / 3))
    assert figures.aux_share == pytest.approx(1 / 5)
    assert figures.actions == {"edit": 1.0, "run": pytest.approx(1 / 3)}
    assert (figures.outcomes, figures.unscorable_outcomes) == ({"completed": 3, "llm_error": 1}, {"llm_error": 1})
    assert figures.tasks["b"].pass_rate == 0.0


def test_unscorable_rollouts_are_told_and_an_agent_without_a_score_has_no_rate() -> None:
    comparison = compare_rollouts(table("aider", {"a": [None, True]}) + table("react", {"a": [None, None]}))
    nothing = comparison.of("react")
    assert (nothing.pass_rate, nothing.interval, nothing.pass_at, nothing.reward, nothing.calls) == (None, None, (), None, None)
    assert comparison.notes[:2] == (
        "aider: 1 of 2 rollouts could not be scored (llm_error 1); rates and means are over the other 1.",
        "react: 2 of 2 rollouts could not be scored (llm_error 2); it has no rates.",
    )
    assert [pair.conclusion for pair in comparison.pairs] == ["no common task"]


def test_tokens_are_unknown_where_the_engine_does_not_count_them() -> None:
    silent = Turn(ModelCall("c", 0, None, (), 0, (), (), reply={"content": "x"}), TurnLabel("train", "b"), "s")
    figures = compare_rollouts([rollout("aider", "a", 0, True, turns=[silent])]).of("aider")
    assert (figures.calls, figures.tokens_in, figures.tokens_out) == (1.0, None, None)


def test_an_endpoint_without_ids_is_told() -> None:
    comparison = compare_rollouts([rollout("aider", "a", 0, True, turns=[call(ids=False)])])
    assert comparison.token_ids is False
    assert "evaluation only" in comparison.notes[0]
    assert comparison.of("aider").tokens_out == 3, "usage is what there is"
    assert compare_rollouts([rollout("nop", "a", 0, True)]).token_ids is None


FIRST, SECOND = (0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 0.0, 0.25), (0.25, 0.75, 0.5, 1.0, 0.5, 1.0, 0.5, 0.75)


def test_the_paired_difference_equals_scipys_paired_t_interval() -> None:
    comparison = compare_rollouts(table("aider", rates(FIRST)) + table("react", rates(SECOND)))
    (pair,) = comparison.pairs
    expected = stats.ttest_rel(SECOND, FIRST).confidence_interval(0.95)
    assert (pair.first, pair.second, pair.tasks) == ("aider", "react", 8)
    assert pair.interval == pytest.approx((expected.low, expected.high))
    assert pair.difference == pytest.approx(fmean(SECOND) - fmean(FIRST))
    assert pair.conclusion == ("higher" if expected.low > 0 else "not separated")


@pytest.mark.parametrize(
    ("second", "conclusion"),
    [
        ((1.0,) * 6, "higher"),
        ((0.0,) * 6, "lower"),
        ((0.5,) * 6, "not separated"),
        ((1, 0, 1, 0, 0.5, 0.75), "not separated"),
        ((1.0,) * 5, "too few tasks"),
    ],
)
def test_the_word_follows_the_interval(second: Sequence[float], conclusion: str) -> None:
    (pair,) = compare_rollouts(table("aider", rates([0.5] * len(second))) + table("react", rates(second))).pairs
    assert pair.conclusion == conclusion
    assert (pair.interval is None) == (len(second) < 6)


def test_only_tasks_that_both_have_scored_are_paired() -> None:
    first = rates([0.5] * 7) | {"t0": [None, None]}
    second = rates([1.0] * 7)
    del second["t6"]
    (pair,) = compare_rollouts(table("aider", first) + table("react", second)).pairs
    assert (pair.tasks, pair.difference, pair.conclusion) == (5, 0.5, "too few tasks")


def test_policies_are_compared_under_each_agent_and_agents_with_each_policy() -> None:
    made = [r for p, rate in (("before", 0.25), ("after", 0.75)) for a in ("aider", "react") for r in table(a, rates([rate] * 6), p)]
    known = [ComparedPolicy("before", ()), ComparedPolicy("after", ("aider",))]
    comparison = compare_rollouts(made, agents=("react", "aider"), policies=known)
    assert comparison.policies == tuple(known)
    assert [(f.policy, f.agent) for f in comparison.figures] == [(p, a) for p in ("before", "after") for a in ("react", "aider")]
    shown = [(pair.between, pair.policy, pair.agent, pair.first, pair.second, pair.difference) for pair in comparison.pairs]
    assert shown == [
        ("agents", "before", "", "react", "aider", 0.0),
        ("agents", "after", "", "react", "aider", 0.0),
        ("policies", "", "react", "before", "after", 0.5),
        ("policies", "", "aider", "before", "after", 0.5),
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_rollouts_finished_changes_nothing(seed: int) -> None:
    made = table("aider", rates(FIRST)) + table("react", rates(SECOND)) + table("nop", {"t0": [None, False]})
    made = [
        rollout(r.agent, r.task_id, r.sample, {"passed": True, "failed": False}.get(r.verdict.status), wall_s=0.1 * i)
        for i, r in enumerate(made)
    ]
    shuffled = list(made)
    random.Random(seed).shuffle(shuffled)
    assert compare_rollouts(shuffled) == compare_rollouts(made)


def test_files_hold_the_same(tmp_path: Path) -> None:
    comparison = compare_rollouts(table("aider", rates(FIRST)) + table("react", rates(SECOND) | {"t1": [None]}))
    write_comparison(tmp_path, comparison)
    assert read_comparison(tmp_path) == comparison
    assert json.loads((tmp_path / "comparison.json").read_text())["schema_version"] == 1
    rows = {row["agent"]: row for row in csv.DictReader((tmp_path / "comparison.csv").read_text().splitlines())}
    assert float(rows["react"]["pass_rate"]) == comparison.of("react").pass_rate
    assert (rows["react"]["unscorable"], rows["react"]["outcome_llm_error"], rows["aider"]["outcome_llm_error"]) == ("1", "1", "")
    (pair,) = csv.DictReader((tmp_path / "pairs.csv").read_text().splitlines())
    assert (float(pair["difference"]), pair["conclusion"]) == (comparison.pairs[0].difference, comparison.pairs[0].conclusion)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema_version": 9}', "schema_version 9"),
        ("{torn", "cannot be read"),
        ('{"schema_version": 1}', "cannot be read"),
        (None, "no comparison"),
    ],
)
def test_a_comparison_that_cannot_be_read_is_refused(tmp_path: Path, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / "comparison.json").write_text(text)
    with pytest.raises(RecordError, match=message):
        read_comparison(tmp_path)


def logistic(values: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-values))


def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pass rates of two agents on `n` random tasks: tasks differ in difficulty, agents in what they find difficult."""
    difficulty = rng.normal(-0.3, 1.2, n)
    return logistic(difficulty + rng.normal(0, 0.6, n)), logistic(difficulty + 0.7 + rng.normal(0, 0.6, n))


@cache
def truth() -> float:
    """Return the mean difference over all tasks there could be, to within 0.0003."""
    first, second = draw(np.random.default_rng(1), 1_000_000)
    return float((second - first).mean())


@pytest.mark.parametrize("n_tasks", [6, 12, 24, 60])
def test_the_interval_covers_the_true_difference_as_often_as_it_says(n_tasks: int) -> None:
    """Tasks are drawn anew each time, 4 samples each: 2,000 repetitions give the coverage to within 1 point (two standard errors)."""
    rng = np.random.default_rng(n_tasks)
    first, second = (rates.reshape(2000, n_tasks) for rates in draw(rng, 2000 * n_tasks))
    deltas = (rng.binomial(4, second) - rng.binomial(4, first)) / 4
    covered = [low <= truth() <= high for low, high in (t_interval(row) or (1, 0) for row in deltas.tolist())]
    assert 0.93 <= fmean(covered) <= 0.97


def test_an_empty_comparison_has_nothing() -> None:
    assert compare_rollouts([]) == Comparison((), (), (), (), None)
    with pytest.raises(KeyError):
        compare_rollouts([]).of("aider")
