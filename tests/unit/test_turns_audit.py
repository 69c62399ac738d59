"""The audit's figures, the guard against invalid captures, and what is said when an agent's history surprises."""

from pathlib import PurePosixPath

import pytest

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan
from longrein.errors import RunStopped
from longrein.model import PublicTask
from longrein.testing.exchanges import Exchange, capture, message, prompt_ids, reply_ids
from longrein.turns import InvalidGuard, audit, history_findings, label_calls, transitions

TASK = PublicTask("Write solution.py: read two integers and print their sum.")
MAIN = [message("system", "You are a coding agent."), message("user", TASK.prompt)]
ONE, TWO = message("assistant", "I write the file as asked."), message("assistant", "The file is done and tested.")
THOUGHT = message("assistant", "<think>Two numbers, one line.</think>I write the file as asked.")
NEXT = message("user", "Go on.")
BAD = {"problem": "6 sampled ids, but usage.completion_tokens is 30"}


def trajectory(exchanges):
    trace = capture(exchanges)
    return label_calls(trace.calls, trace.tools, task=TASK)


def adapter(declared):
    class Agent(AgentAdapter):
        name = "sketch"
        capabilities = Capabilities(history=declared)

        def launch(self, session):
            return LaunchPlan(["true"], files={str(PurePosixPath("x")): ""})

    return Agent()


PLAIN = [Exchange("c1", MAIN, ONE), Exchange("c2", [*MAIN, ONE, NEXT], TWO)]
STRIPPED = [Exchange("c1", MAIN, THOUGHT), Exchange("c2", [*MAIN, ONE, NEXT], TWO)]
REWRITTEN = [Exchange("c1", MAIN, ONE), Exchange("c2", [MAIN[0], message("user", "Files: solution.py"), MAIN[1], ONE, NEXT], TWO)]
BOTH = [STRIPPED[0], REWRITTEN[1]]


def test_figures_by_label_reason_and_author():
    title = Exchange("t", [message("system", "Titles only."), message("user", f"Title: {TASK.prompt}")], message("assistant", "Sum"))
    bad = Exchange("b", [*MAIN, ONE, NEXT, TWO, NEXT], ONE, (), {**BAD, "finish_reason": "length"})
    other = Exchange("b", [*MAIN, ONE, NEXT, TWO, NEXT], ONE, (), {"problem": "9 sampled ids, but usage.completion_tokens is 31"})
    sessions = [("aider", [*PLAIN, title, bad]), ("opencode", PLAIN), ("aider", [*PLAIN, other])]
    report = audit(((agent, trajectory(exchanges)) for agent, exchanges in sessions), examples=1)
    aider, opencode = report.agents
    assert (aider.agent, opencode.agent) == ("aider", "opencode")
    assert (aider.turns, opencode.turns) == (7, 2)
    assert (aider.unlabelled, aider.truncated) == (0, 1)
    assert sum(row.turns for row in aider.rows) == 7
    assert sum(row.tokens for row in aider.rows) == aider.tokens
    [invalid] = [row for row in aider.rows if row.label == "invalid"]
    assert (invalid.reason, invalid.decided_by, invalid.turns) == ("N sampled ids, but usage.completion_tokens is N", "capture", 2)
    [aux] = [row for row in aider.rows if row.label == "aux"]
    assert (aux.turns, aux.tokens, aux.decided_by) == (1, len(reply_ids(title.reply)), "structure")
    assert aux.examples[0].call_id == "t"
    assert aux.examples[0].asked.endswith("print their sum.")
    assert aux.examples[0].replied == "Sum"
    metrics = aider.metrics()
    assert (metrics["turns/train"], metrics["turns/aux"], metrics["turns/invalid"], metrics["turns/discarded"]) == (4, 1, 2, 0)
    assert metrics["tokens/train"] == 2 * (len(reply_ids(ONE)) + len(reply_ids(TWO)))
    assert audit([("aider", trajectory(PLAIN))]).agents[0].rows[0].examples == ()


def test_a_transition_continues_forks_or_drifts():
    [continued] = transitions(trajectory(PLAIN))
    added = len(prompt_ids([*MAIN, ONE, NEXT])) - len(prompt_ids(MAIN)) - len(reply_ids(ONE))
    assert (continued.kind, continued.before_id, continued.n_tokens) == ("continued", "c1", added)

    fork = Exchange("c3", [*MAIN, ONE, message("user", "Look around.")], TWO)
    forked = transitions(trajectory([*PLAIN, fork]))[-1]
    assert (forked.kind, forked.before_id, forked.n_tokens) == ("forked", "c1", len(prompt_ids(MAIN)) + len(reply_ids(ONE)))

    [stripped] = transitions(trajectory(STRIPPED))
    assert (stripped.kind, stripped.n_tokens, stripped.dropped_thinking) == ("drifted", len(reply_ids(THOUGHT)), True)

    [rewritten] = transitions(trajectory(REWRITTEN))
    same = len(prompt_ids(MAIN[:1])) - len(prompt_ids([])) + 3
    end = len(prompt_ids(MAIN)) + len(reply_ids(ONE))
    assert (rewritten.kind, rewritten.dropped_thinking) == ("drifted", False)
    assert rewritten.n_tokens == end - same


def test_an_altered_reply_is_a_drift_and_both_turns_are_trained():
    altered = message("assistant", "I write the file")
    got = trajectory([Exchange("c1", MAIN, ONE), Exchange("c2", [*MAIN, altered, NEXT], TWO)])
    assert [turn.label.label for turn in got] == ["train", "train"]
    assert [(t.kind, t.before_id) for t in transitions(got)] == [("drifted", "c1")]


@pytest.mark.parametrize(
    ("declared", "exchanges", "reported"),
    [
        ("append_only", PLAIN, False),
        ("append_only", STRIPPED, True),
        ("append_only", REWRITTEN, True),
        ("strips_thinking", STRIPPED, False),
        ("strips_thinking", REWRITTEN, True),
        ("strips_thinking", BOTH, True),
        ("rewrites", STRIPPED, False),
        ("rewrites", REWRITTEN, False),
        ("rewrites", PLAIN, False),
    ],
)
def test_a_history_that_does_not_do_what_its_adapter_declares(declared, exchanges, reported):
    found = history_findings(trajectory(exchanges), adapter(declared))
    assert [finding.source for finding in found] == ["agent:sketch"] * reported
    if reported:
        assert f"declares history '{declared}', but 1 of 2 calls" in found[0].message
        assert "at call c2" in found[0].message


def bad_session(n_bad, n_good):
    asked = [[*MAIN, message("user", f"Question {n}")] for n in range(n_bad + n_good)]
    return trajectory([Exchange(f"c{n}", messages, ONE, (), BAD if n < n_bad else {}) for n, messages in enumerate(asked)])


def test_more_than_a_fifth_invalid_stops_the_run_with_the_reason():
    guard = InvalidGuard()
    guard.check(bad_session(20, 10))
    guard.check(bad_session(0, 90))
    guard.check(bad_session(10, 10))
    with pytest.raises(RunStopped, match=r"21 of the last 100 turns are invalid.*21 times because: N sampled ids, but usage"):
        guard.check(bad_session(11, 0))
