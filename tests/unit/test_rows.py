"""Rows by hand: the kinds that people have met, and the weighting of rollouts in the loss."""

import pytest

from longrein.model import Trajectory, Turn, TurnLabel
from longrein.testing.exchanges import NEWLINE, STOP, Exchange, capture, message, prompt_ids, reply_ids
from longrein.training.advantages import rollout_weights
from longrein.turns import build_rows

ASK = [message("user", "Write solution.py")]
ONE, TWO = message("assistant", "I write it now"), message("assistant", "It is done")
NEXT = message("user", "go on")


def rows(exchanges, labels=(), budget=None):
    """Build rows with every turn labelled train, but for those in `labels`."""
    trace = capture(exchanges)
    turns = [Turn(call, TurnLabel(dict(labels).get(call.id, "train"), "test"), "test") for call in trace.calls]
    return build_rows(Trajectory(tuple(turns)), rollout_id="r", agent="a", token_budget=budget)


def trained(row):
    """The trained tokens of a row, in order."""
    return [token for token, mask in zip(row.input_ids, row.mask, strict=True) if mask]


def test_the_stop_token_is_kept_once_and_the_newline_is_context():
    [row] = rows([Exchange("c1", ASK, ONE), Exchange("c2", [*ASK, ONE, NEXT], TWO)]).rows
    assert row.input_ids == [*prompt_ids([*ASK, ONE, NEXT]), *reply_ids(TWO)]
    assert trained(row) == [*reply_ids(ONE), *reply_ids(TWO)]
    end = len(prompt_ids(ASK)) + len(reply_ids(ONE))
    assert row.input_ids[end - 1 : end + 1] == [STOP, NEWLINE]
    assert row.mask[end - 1 : end + 1] == [1, 0]
    assert row.call_ids == ("c1", "c2")


def test_dropped_thinking_makes_two_rows_and_each_token_is_trained_once():
    thought = message("assistant", "<think>Hm, a file.</think>I write it now")
    first, second = rows([Exchange("c1", ASK, thought), Exchange("c2", [*ASK, ONE, NEXT], TWO)]).rows
    assert (trained(first), trained(second)) == (reply_ids(thought), reply_ids(TWO))


def test_branches_train_the_shared_turn_once():
    other = message("user", "look around")
    found = message("assistant", "Nothing here")
    exchanges = [Exchange("c1", ASK, ONE), Exchange("c2", [*ASK, ONE, NEXT], TWO), Exchange("c3", [*ASK, ONE, other], found)]
    first, second = rows(exchanges).rows
    assert trained(first) == [*reply_ids(ONE), *reply_ids(TWO)]
    assert trained(second) == reply_ids(found)
    assert second.input_ids[: len(prompt_ids(ASK))] == prompt_ids(ASK)


@pytest.mark.parametrize("label", ["context", "aux", "discarded", "invalid"])
def test_turns_with_another_label_are_context_where_a_train_turn_goes_on_from_them(label):
    exchanges = [Exchange("c1", ASK, ONE), Exchange("c2", [*ASK, ONE, NEXT], TWO)]
    [row] = rows(exchanges, {"c1": label}).rows
    assert trained(row) == reply_ids(TWO)
    [row] = rows(exchanges, {"c2": label}).rows
    assert row.input_ids == [*prompt_ids(ASK), *reply_ids(ONE)]
    assert rows(exchanges, {"c1": label, "c2": label}).rows == ()


def test_text_that_the_agent_made_up_is_context():
    made_up = message("assistant", "I follow the rules")
    [row] = rows([Exchange("c1", [*ASK, made_up, NEXT], TWO)]).rows
    assert trained(row) == reply_ids(TWO)


def test_a_call_without_a_reply_makes_no_row():
    assert rows([Exchange("c1", ASK, ONE, (), {"error": "HTTP 500"})]).rows == ()


def test_an_invalid_turn_with_unequal_arrays_can_be_context():
    [row] = rows(
        [Exchange("c1", ASK, ONE, (), {"logprobs": (), "problem": "5 ids, 0 log-probabilities"}), Exchange("c2", [*ASK, ONE, NEXT], TWO)],
        {"c1": "invalid"},
    ).rows
    assert trained(row) == reply_ids(TWO)


def test_a_row_has_the_oldest_version_among_its_own_trained_turns():
    exchanges = [
        Exchange("c1", ASK, ONE, (), {"version_first": 3, "version_last": 4}),
        Exchange("c2", [*ASK, ONE, NEXT], TWO, (), {"version_first": 5, "version_last": 5}),
        Exchange("c3", [*ASK, ONE, message("user", "look")], TWO, (), {"version_first": 6, "version_last": 7}),
    ]
    assert [row.version for row in rows(exchanges).rows] == [3, 6]


def test_a_parent_that_arrived_after_its_child():
    exchanges = [Exchange("c2", [*ASK, ONE, NEXT], TWO), Exchange("c1", ASK, ONE)]
    found = rows(exchanges, budget=1000)
    [row] = found.rows
    assert row.call_ids == ("c1", "c2")
    assert trained(row) == [*reply_ids(ONE), *reply_ids(TWO)]


def test_over_the_budget_only_the_turns_that_do_not_fit_are_discarded():
    exchanges = [Exchange("c1", ASK, ONE), Exchange("c2", [*ASK, ONE, NEXT], TWO)]
    end = len(prompt_ids([*ASK, ONE, NEXT])) + len(reply_ids(TWO))
    assert len(rows(exchanges, budget=end).rows[0].input_ids) == end
    found = rows(exchanges, budget=end - 1)
    assert [row.call_ids for row in found.rows] == [("c1",)]
    assert found.relabelled.turn("c2").label == TurnLabel(
        "discarded",
        f"over_token_budget: prompt and reply are {end} tokens, the budget is {end - 1}",
    )
    assert found.relabelled.turn("c2").decided_by == "policy"


LOSSES = {"a": [1.0, 3.0], "b": [2.0] * 6, "c": [5.0] * 4}


def trl_loss(factors):
    """TRL's loss: per-token losses, linear in the advantage, summed and divided by the number of trained tokens."""
    tokens = [factors[rollout] * loss for rollout, losses in LOSSES.items() for loss in losses]
    return sum(tokens) / len(tokens)


def test_weighting_by_token_is_the_mean_over_tokens_by_rollout_the_mean_over_rollouts():
    assert trl_loss(dict.fromkeys(LOSSES, 1.0)) == pytest.approx((4 + 12 + 20) / 12)
    factors = rollout_weights({rollout: len(losses) for rollout, losses in LOSSES.items()})
    assert trl_loss(factors) == pytest.approx((2 + 2 + 5) / 3)


def test_the_factors_of_weighting_are_bounded():
    assert rollout_weights({"short": 1, "long": 100_000, "mean": 50_000})["short"] == 8.0
    assert rollout_weights({**{str(i): 1 for i in range(20)}, "long": 10_000})["long"] == 1 / 8
