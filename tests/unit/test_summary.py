"""Summaries: rates, intervals and paired differences."""

from __future__ import annotations

import pytest
from attrs import evolve
from scipy import stats

from longrein.cli.output import show_summary
from longrein.model import Outcome, Rollout, SessionResult, Trajectory, Verdict
from longrein.rollout.summary import Cell, difference, summarize, wilson


def cells(phase: str, table: dict[str, list[bool | None]], agent: str = "aider") -> list[Cell]:
    return [
        Cell(agent, task, phase, passed, "completed" if passed is not None else "llm_error", None if passed is None else float(passed))
        for task, column in table.items()
        for passed in column
    ]


@pytest.mark.parametrize(("passed", "n"), [(0, 32), (5, 32), (32, 32), (1, 2), (400, 1000)])
def test_wilson_equals_scipy(passed: int, n: int) -> None:
    expected = stats.binomtest(passed, n).proportion_ci(0.95, method="wilson")
    assert wilson(passed, n) == pytest.approx([expected.low, expected.high], abs=1e-12)


def test_unscorable_is_no_failure() -> None:
    side = cells("run", {"a": [True, None], "b": [False, None]})
    entry = summarize({"run": side})["agents"]["aider"]["run"]
    assert (entry["pass_rate"], entry["n"], entry["unscorable"]) == (0.5, 2, 2)
    assert wilson(0, 0) is None


def test_difference_is_paired_by_task_and_equals_scipys_paired_t_interval() -> None:
    before = cells("before", {f"t{i}": [i % 2 == 0, False, False, False] for i in range(8)})
    after = cells("after", {f"t{i}": [True, i % 3 == 0, True, False] for i in range(8)})
    change = difference(before, after)
    pairs = [
        (sum(c.passed for c in after if c.task_id == t) / 4, sum(c.passed for c in before if c.task_id == t) / 4)
        for t in (f"t{i}" for i in range(8))
    ]
    expected = stats.ttest_rel(*zip(*pairs, strict=True)).confidence_interval(0.95)
    assert change["interval"] == pytest.approx([expected.low, expected.high])
    assert change["pairs"] == 8


def test_no_interval_under_six_pairs() -> None:
    side = cells("x", {f"t{i}": [True] for i in range(5)})
    assert difference(side, side) == {"difference": 0.0, "pairs": 5, "interval": None}


def on(taskset: str, side: list[Cell]) -> list[Cell]:
    return [evolve(cell, taskset=taskset) for cell in side]


def test_several_task_sets_have_figures_of_their_own_for_each_agent_and_pooled(capsys: pytest.CaptureFixture[str]) -> None:
    def side(passed: bool) -> list[Cell]:
        easy = on("easy", cells("x", {"easy.t": [True]}) + cells("x", {"easy.t": [passed]}, "opencode"))
        return easy + on("hard", cells("x", {"hard.t": [passed]}))

    summary = summarize({"before": side(False), "after": side(True)})
    aider = summary["agents"]["aider"]["tasksets"]
    assert "tasksets" not in summary["agents"]["opencode"], "it has rollouts on one only"
    assert (aider["easy"]["change"]["difference"], aider["hard"]["change"]["difference"]) == (0.0, 1.0)
    assert summary["tasksets"]["easy"]["before"]["pass_rate"] == 0.5
    assert summary["tasksets"]["easy"]["change"] == {"difference": 0.5, "pairs": 2, "interval": None}
    show_summary(summary)
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["aider", "on", "hard", "before", "0.0", "%"] in [line[:6] for line in printed]
    assert ["all", "on", "easy", "before", "50.0", "%"] in [line[:6] for line in printed]


def test_one_task_set_has_no_figures_of_its_own() -> None:
    assert "tasksets" not in str(summarize({"run": on("practice", cells("run", {"a": [True]}))}))


def test_summary_has_both_sides_for_each_agent_and_counts_outcomes_of_training_too() -> None:
    before, after = (cells(side, {"a": [side == "after"]}) + cells(side, {"a": [False]}, "opencode") for side in ("before", "after"))
    summary = summarize({"before": before, "after": after}, trained=cells("train", {"b": [None]}))
    assert summary["agents"]["aider"]["before"]["pass_rate"] == 0.0
    assert summary["agents"]["aider"]["after"]["pass_rate"] == 1.0
    assert summary["agents"]["aider"]["outcomes"] == {"completed": 2, "llm_error": 1}
    assert summary["pooled"]["change"]["difference"] == 0.5


@pytest.mark.parametrize(
    ("verdict", "passed"), [(Verdict("passed", 1.0), True), (Verdict("failed", 0.5), False), (Verdict.unscorable("x"), None)]
)
def test_a_rollout_that_could_not_be_scored_neither_passed_nor_failed(verdict: Verdict, passed: bool | None) -> None:
    session = SessionResult("s", "aider", Outcome("completed"), Trajectory())
    assert Cell.of(Rollout("g.0", "g", "aider", "practice", "t", "d", 0, 1, session, verdict)).passed is passed
