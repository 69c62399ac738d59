"""The reward "ruler" against a scripted judge: what each kind of answer leads to."""

from __future__ import annotations

import asyncio
import json
import math
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ruler.conftest import KEY, Says, by_worth, ids, rollout, score, scores, shown, turns, worth

from longrein.errors import ConfigError
from longrein.model import Verdict
from longrein_ruler import judge as judging

ALONE = {"blend": "judge"}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record how long would be waited, and do not wait: tests take no time for it."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(judging, "sleep", sleep)
    return waited


def values(rewards: dict[str, Any]) -> list[float | None]:
    return [reward.value for reward in rewards.values()]


async def test_scores_come_back_by_id_in_whatever_order_they_were_shown(ruler, judge):
    rewards = await score(ruler(**ALONE), worth(0.1, 0.9, 0.5, 0.3))
    assert values(rewards) == [0.1, 0.9, 0.5, 0.3]
    assert rewards["r1"].reason == "worth 0.9"
    assert {reward.decided_by for reward in rewards.values()} == {"reward:ruler"}
    (request,) = judge.requests
    assert judge.keys == [f"Bearer {KEY}"]
    positions = [reward.details["positions"][0] for reward in rewards.values()]
    assert sorted(positions) == [0, 1, 2, 3]
    names = ids(request)
    assert [f"worth {v}" in shown(request)[names[place]] for v, place in zip([0.1, 0.9, 0.5, 0.3], positions, strict=True)] == [True] * 4


async def test_the_order_is_drawn_from_the_seed_and_differs_between_groups(ruler, judge):
    for seed in range(6):
        await score(ruler(seed=seed, **ALONE), worth(0.1, 0.9, 0.5, 0.3))
    orders = [[text[text.index("worth") :] for text in shown(request).values()] for request in judge.requests]
    assert len({str(order) for order in orders}) > 1
    assert len({str(ids(request)) for request in judge.requests}) == 6


async def test_an_answer_in_another_order_than_asked_is_read_by_id(ruler, judge):
    def reversed_(body: dict[str, Any], number: int) -> Says:
        given = json.loads(by_worth(body).text or "")
        return Says(json.dumps(dict(reversed(given.items()))))

    judge.script = reversed_
    assert values(await score(ruler(**ALONE), worth(0.1, 0.9, 0.5))) == [0.1, 0.9, 0.5]


BAD = {
    "wrong ids": (lambda body: scores({"zzz": 0.5, **dict.fromkeys(ids(body)[1:], 0.5)}), "scores without t"),
    "missing score": (lambda body: scores(dict.fromkeys(ids(body)[1:], 0.5)), "scores without t"),
    "one id too many": (lambda body: scores({"zzz": 0.5, **dict.fromkeys(ids(body), 0.5)}), "scores with unknown zzz"),
    "an id twice": (lambda body: Says("{" + ", ".join(f'"{i}": {{"score": 0.1}}' for i in [ids(body)[0], *ids(body)]) + "}"), "twice"),
    "no JSON": (lambda body: Says("I like the first one best."), "no JSON object: 'I like the first"),
    "cut JSON": (lambda body: Says('{"t1": {"score": 0.'), "no JSON object"),
    "deep JSON": (lambda body: Says('{"a":' + "[" * 5000), "no JSON object"),
    "above the range": (lambda body: scores(dict.fromkeys(ids(body), 1.5)), "score 1.5 of t"),
    "below the range": (lambda body: scores(dict.fromkeys(ids(body), -0.1)), "score -0.1 of t"),
    "not a number": (lambda body: scores(dict.fromkeys(ids(body), math.nan)), "score nan of t"),
    "true": (lambda body: scores(dict.fromkeys(ids(body), True)), "no number as score of t"),
    "text": (lambda body: scores(dict.fromkeys(ids(body), "0.5")), "no number as score of t"),
    "a bare number": (lambda body: Says(json.dumps(dict.fromkeys(ids(body), 0.5))), "no number as score of t"),
    "cut by length": (lambda body: Says(by_worth(body).text, finish="length"), "cut at the endpoint's limit"),
    "no text": (lambda body: Says(body='{"choices": [{"message": {"content": null, "refusal": "I will not"}}]}'), "refusal: I will not"),
    "no completion": (lambda body: Says(body="<html>"), "not a chat completion"),
    "a list": (lambda body: Says(body="[]"), "not a chat completion"),
    "an endless reply": (lambda body: Says("x" * 2_000_000), "longer than 1,048,576 bytes"),
}


@pytest.mark.parametrize(("bad", "message"), BAD.values(), ids=BAD)
async def test_a_bad_answer_is_asked_for_again_and_then_makes_the_group_unscorable(ruler, judge, waits, bad, message):
    judge.script = lambda body, number: bad(body)
    rewards = await score(ruler(retries=2), worth(0.1, 0.9, status=["passed"]))
    assert len(judge.requests) == 3
    assert values(rewards) == [None, None], "never 0"
    for reward in rewards.values():
        assert reward.reason.startswith("unscorable, the judge gave no score (bad_answer): ")
        assert message in reward.reason
        assert reward.details["failure"] == "bad_answer"
    assert waits == []


async def test_the_judge_is_told_what_was_wrong_and_may_mend_it(ruler, judge):
    judge.script = lambda body, number: Says("none") if number == 1 else by_worth(body)
    rewards = await score(ruler(**ALONE), worth(0.1, 0.9))
    assert values(rewards) == [0.1, 0.9]
    assert [reward.details["calls"] for reward in rewards.values()] == [2, 2]
    first, second = judge.requests
    assert second["messages"][:2] == first["messages"]
    assert [message["role"] for message in second["messages"][2:]] == ["assistant", "user"]
    assert "no JSON object: 'none'" in second["messages"][3]["content"]


@pytest.mark.parametrize("text", ["```json\n{}\n```", "Here you are: {} Anything else?"])
async def test_an_answer_wrapped_in_words_is_read(ruler, judge, text):
    judge.script = lambda body, number: Says(text.replace("{}", by_worth(body).text or ""))
    assert values(await score(ruler(**ALONE), worth(0.1, 0.9))) == [0.1, 0.9]


async def test_a_schema_is_asked_for_with_every_id(ruler, judge):
    await score(ruler(request={"temperature": 0.0, "max_tokens": 900}), worth(0.1, 0.9))
    (request,) = judge.requests
    assert (request["temperature"], request["max_tokens"], request["model"]) == (0.0, 900, "scripted")
    form = request["response_format"]["json_schema"]
    assert form["strict"] is True
    assert form["schema"]["required"] == ids(request)
    assert form["schema"]["additionalProperties"] is False


async def test_an_endpoint_without_schemas_is_asked_in_plain_words_from_then_on(ruler, judge):
    def script(body: dict[str, Any], number: int) -> Says:
        return Says(status=400, body='{"error": "response_format is not supported"}') if "response_format" in body else by_worth(body)

    judge.script = script
    reward = ruler(retries=0, max_calls=2, **ALONE)
    assert values(await score(reward, worth(0.1, 0.9))) == [0.1, 0.9]
    assert values(await score(reward, worth(0.2, 0.8))) == [0.2, 0.8]
    assert ["response_format" in request for request in judge.requests] == [True, False, False]


async def test_a_rate_limit_is_waited_for_as_long_as_it_asks(ruler, judge, waits):
    date = formatdate(0, usegmt=True)  # long ago
    answers = [Says(status=429, headers={"Retry-After": "7"}), Says(status=429, headers={"Retry-After": date}), Says(status=429)]
    judge.script = lambda body, number: answers[number - 1] if number <= 3 else by_worth(body)
    assert values(await score(ruler(**ALONE), worth(0.1, 0.9))) == [0.1, 0.9]
    assert waits == [7.0, 0.0, 4.0], "what it asks for, a date that has passed, else twice as long each time"


async def test_a_rate_limit_that_asks_for_too_long_is_not_waited_for(ruler, judge, waits):
    judge.script = lambda body, number: Says(status=429, headers={"Retry-After": "3600"}, body="slow down")
    rewards = await score(ruler(), worth(0.1, 0.9))
    assert (values(rewards), waits, len(judge.requests)) == ([None, None], [], 1)
    assert "(rate_limited): the endpoint answered 429: slow down (it asks to wait 3600 s; max_wait_s is 60)" in rewards["r0"].reason


async def test_the_requests_after_rate_limits_are_bounded(ruler, judge, waits):
    judge.script = lambda body, number: Says(status=429, body="slow down")
    rewards = await score(ruler(max_wait_s=3), worth(0.1, 0.9))
    assert (values(rewards), waits, len(judge.requests)) == ([None, None], [1.0, 2.0, 3.0], 4)
    assert rewards["r0"].details["failure"] == "rate_limited"


async def test_a_server_that_fails_once_is_asked_again(ruler, judge, waits):
    judge.script = lambda body, number: Says(status=503, body="overloaded") if number == 1 else by_worth(body)
    assert values(await score(ruler(**ALONE), worth(0.1, 0.9))) == [0.1, 0.9]
    judge.script = lambda body, number: Says(status=500, body="broken")
    rewards = await score(ruler(retries=0), worth(0.2, 0.8))
    assert rewards["r0"].reason == "unscorable, the judge gave no score (server_error): the endpoint answered 500: broken"


async def test_no_reply_in_time_makes_the_group_unscorable(ruler, judge, waits):
    judge.script = lambda body, number: Says(never=True)
    rewards = await score(ruler(timeout_s=2, retries=1), worth(0.1, 0.9))
    assert (values(rewards), len(judge.requests)) == ([None, None], 2)
    assert rewards["r0"].reason == "unscorable, the judge gave no score (timeout): no reply within 2 s"


async def test_nobody_there_makes_the_group_unscorable(ruler, waits):
    rewards = await score(ruler(url="http://127.0.0.1:9/v1", retries=0), worth(0.1, 0.9))
    assert "(unreachable): ConnectError" in rewards["r0"].reason


@pytest.mark.parametrize("status", [401, 302])
async def test_a_refusal_is_not_tried_again_and_never_shows_the_key(ruler, judge, status):
    judge.script = lambda body, number: Says(status=status, headers={"Location": "http://elsewhere/"}, body=f"bad key {KEY}")
    rewards = await score(ruler(), worth(0.1, 0.9))
    assert len(judge.requests) == 1
    assert rewards["r0"].reason == f"unscorable, the judge gave no score (refused): the endpoint answered {status}: bad key [key]"


async def test_what_was_paid_for_is_not_asked_again_by_a_resumed_run(ruler, judge):
    first = await score(ruler(passes=2), worth(0.1, 0.9))
    other = [rollout(i + 7, r.trajectory) for i, r in enumerate(worth(0.1, 0.9).rollouts)]
    again = await score(ruler(passes=2, url=judge.url + "/"), worth(0.1, 0.9))
    moved = await score(ruler(passes=2), type(worth(0.1))("g000900", "a", "set", "t", tuple(reversed(other))))
    assert len(judge.requests) == 2
    assert values(first) == values(again) == list(reversed(values(moved)))
    assert [rewards["r0"].details["calls"] for rewards in (first, again)] == [2, 0]
    await score(ruler(passes=2, rubric=None, seed=1), worth(0.1, 0.9))
    assert len(judge.requests) == 4


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"schema_version": 1, "scores": {}}', '{"schema_version": 9}'])
async def test_a_damaged_answer_in_the_cache_is_asked_for_again(ruler, judge, tmp_path: Path, damage):
    await score(ruler(**ALONE), worth(0.1, 0.9))
    (kept,) = (tmp_path / "cache").glob("??/*")
    kept.write_text(damage)
    assert values(await score(ruler(**ALONE), worth(0.1, 0.9))) == [0.1, 0.9]
    assert len(judge.requests) == 2
    assert json.loads(kept.read_text())["scores"]
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == ["spent.jsonl", kept.name]


async def test_failures_are_not_kept(ruler, judge):
    judge.script = lambda body, number: Says("none") if number == 1 else by_worth(body)
    assert values(await score(ruler(retries=0), worth(0.1, 0.9))) == [None, None]
    assert None not in values(await score(ruler(retries=0), worth(0.1, 0.9)))


async def test_calls_are_capped_over_all_runs_of_a_cache(ruler, judge):
    assert None not in values(await score(ruler(max_calls=2), worth(0.1, 0.9)))
    reward = ruler(max_calls=2)
    assert None not in values(await score(reward, worth(0.2, 0.8)))
    over = await score(reward, worth(0.3, 0.7))
    assert (values(over), len(judge.requests)) == ([None, None], 2)
    assert over["r0"].reason.startswith("unscorable, the judge gave no score (capped): max_calls = 2 is reached: 2 calls in ")
    assert None not in values(await score(reward, worth(0.2, 0.8))), "the cache costs nothing"


async def test_groups_at_once_stay_within_the_cap(ruler, judge):
    reward = ruler(max_calls=3)
    made = await asyncio.gather(*(score(reward, worth(0.1, 0.9 - i / 100)) for i in range(8)))
    assert (len(judge.requests), sum(None not in values(rewards) for rewards in made)) == (3, 3)


async def test_cost_is_capped_before_it_is_spent(ruler, judge, tmp_path: Path):
    prices = {"price_in": 1000.0, "price_out": 5000.0}  # 1.0 and 0.5 for a scripted answer
    rewards = await score(ruler(max_cost=3.2, **prices), worth(0.1, 0.9))
    assert rewards["r0"].details["cost"] == pytest.approx(1.5)
    await score(ruler(max_cost=3.2, **prices), worth(0.2, 0.8))
    over = await score(ruler(max_cost=3.2, **prices), worth(0.3, 0.7))
    assert (values(over), len(judge.requests)) == ([None, None], 2)
    assert "(capped): max_cost = 3.2 would be passed: 3.0000 spent in " in over["r0"].reason
    lines = [json.loads(line) for line in (tmp_path / "cache" / "spent.jsonl").read_text().splitlines()]
    assert [(line["in"], line["out"], line["cost"]) for line in lines] == [(1000, 100, 1.5)] * 2


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": -1, "completion_tokens": "many"}])
async def test_what_an_endpoint_does_not_count_is_estimated(ruler, judge, usage):
    judge.script = lambda body, number: Says(by_worth(body).text, usage=usage)
    rewards = await score(ruler(price_in=1e6), worth(0.1, 0.9))
    assert 300 < rewards["r0"].details["cost"] < 2000, "tokens of the prompt"


async def test_a_second_pass_turns_the_order_round_and_reports_agreement(ruler, judge):
    rewards = await score(ruler(passes=2, **ALONE), worth(0.1, 0.9, 0.5, 0.3))
    first, second = judge.requests
    assert ids(second) == ids(first)[::-1]
    assert values(rewards) == [0.1, 0.9, 0.5, 0.3]
    assert {reward.details["agreement"] for reward in rewards.values()} == {1.0}
    assert all(sum(reward.details["positions"]) == 3 for reward in rewards.values())


async def test_a_judge_that_goes_by_place_is_found_out(ruler, judge):
    judge.script = lambda body, number: scores({name: 1.0 - i / 10 for i, name in enumerate(ids(body))})
    rewards = await score(ruler(passes=2, **ALONE), worth(0.1, 0.9, 0.5, 0.3))
    assert rewards["r0"].details["agreement"] == pytest.approx(-1.0)
    assert values(rewards) == pytest.approx([0.85] * 4)


async def test_a_pass_that_fails_leaves_no_score(ruler, judge):
    judge.script = lambda body, number: by_worth(body) if number == 1 else Says("none")
    assert values(await score(ruler(passes=2, retries=0), worth(0.1, 0.9))) == [None, None]


async def test_rollouts_that_read_the_same_are_shown_once(ruler, judge):
    same = [rollout(i, turns("try", f"worth {0.2 if i < 3 else 0.8}")) for i in range(4)]
    rewards = await score(ruler(**ALONE), type(worth(0.1))("g", "a", "set", "t", tuple(same)))
    assert values(rewards) == [0.2, 0.2, 0.2, 0.8]
    assert len(ids(judge.requests[0])) == 2
    alike = await score(ruler(**ALONE), type(worth(0.1))("g", "a", "set", "t", tuple(same[:3])))
    assert (values(alike), len(judge.requests)) == ([0.5] * 3, 1)


async def test_unscorable_rollouts_are_not_shown_and_stay_without_a_reward(ruler, judge):
    rewards = await score(ruler(**ALONE), worth(0.1, 0.9, 0.5, status=["failed", "failed", "unscorable"]))
    assert values(rewards) == [0.1, 0.9, None]
    assert rewards["r2"].reason == "grader broke"
    assert len(ids(judge.requests[0])) == 2
    lone = await score(ruler(**ALONE), worth(0.1, 0.9, status=["failed", "unscorable"]))
    assert (values(lone), len(judge.requests)) == ([None, None], 1)
    assert lone["r0"].reason == "a relative score needs two rollouts of the group, 1 of 2 can be scored"


async def test_one_rollout_is_scored_in_absolute_mode_only(ruler, judge):
    (one,) = worth(0.7).rollouts
    relative = await ruler(**ALONE).compute(one)
    assert (relative.value, judge.requests) == (None, [])
    assert 'mode = "absolute"' in relative.reason
    reward = ruler(mode="absolute", **ALONE)
    assert (await reward.compute(one)).value == 0.7
    (request,) = judge.requests
    assert "by the rubric alone" in request["messages"][0]["content"]
    assert "try 0" in shown(request)[ids(request)[0]]
    assert values(await score(reward, worth(0.7, 0.6))) == [0.7, 0.6]
    assert [len(ids(request)) for request in judge.requests] == [1, 1]


async def test_hidden_results_and_keys_never_reach_the_judge(ruler, judge):
    from longrein.model import CaseResult

    case = CaseResult("wrong_answer", "detail-canary", "got-canary", "expected-canary")
    hidden: Any = {"reason": "reason-canary", "cases": (case,), "details": {"of": "details-canary"}}
    both = [rollout(i, turns(f"try {i}", f"worth 0.{i + 1}"), "failed", **hidden) for i in range(2)]
    assert both[0].verdict == Verdict("failed", 0.0, **hidden)
    await score(ruler(), type(worth(0.1))("g", "a", "set", "t", tuple(both)))
    sent = json.dumps(judge.requests)
    assert "verifier: failed; session: completed; actions: 1 edit, 1 run" in sent
    assert "canary" not in sent
    assert KEY not in sent


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"api_key_env": "NO_SUCH_KEY"}, "api_key_env names 'NO_SUCH_KEY', which is not set in the environment"),
        ({"url": "ftp://judge"}, "url must begin with http:// or https://"),
        ({"request": {"messages": []}}, "request cannot hold messages"),
        ({"max_cost": 1.0}, "max_cost needs price_in and price_out"),
        ({"passes": 2, "mode": "absolute"}, "passes = 2 shows a group in another order"),
        ({"passes": 3}, "passes"),
        ({"rubric": "no/such/rubric.md"}, "rubric: cannot read no/such/rubric.md"),
        ({"blend": "verifier-first"}, "did you mean 'verifier_first'"),
    ],
)
def test_options_that_cannot_be_used_are_refused_before_anything_is_spent(ruler, options, message):
    with pytest.raises(ConfigError) as refused:
        ruler(**options)
    assert message in str(refused.value)


async def test_the_rubric_of_a_file_is_sent(ruler, judge, tmp_path: Path):
    (tmp_path / "rubric.md").write_text("Shorter programs score higher.\n")
    await score(ruler(rubric=str(tmp_path / "rubric.md")), worth(0.1, 0.9))
    assert judge.requests[0]["messages"][0]["content"].endswith("Rubric:\nShorter programs score higher.\n")
    (tmp_path / "rubric.md").write_text(" \n")
    with pytest.raises(ConfigError, match="it takes text of at most 20,000"):
        ruler(rubric=str(tmp_path / "rubric.md"))
