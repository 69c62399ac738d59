"""Linking and deltas: calls arrive in any order and every token comes back out."""

from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.capture.trace import Trace
from longrein.model import ModelCall, Trajectory, Turn, TurnLabel


def call(index: int, sampled: list[int], **values: Any) -> ModelCall:
    return ModelCall(f"c{index}", index, None, (), 0, sampled, [-1.0] * len(sampled), **values)


def as_trajectory(trace: Trace) -> Trajectory:
    return Trajectory(tuple(Turn(each, TurnLabel("train", ""), "test") for each in trace.calls), trace.tools)


def built(*calls: tuple[list[int], list[int]], order: list[int] | None = None) -> Trace:
    trace = Trace()
    for index in order or range(len(calls)):
        prompt, sampled = calls[index]
        trace.add(call(index, sampled), prompt, [])
    return trace


def parents(trace: Trace) -> list[str | None]:
    return [each.parent_id for each in trace.calls]


# A prompt is drawn letter by letter from two tokens, so prefixes of every kind are common.
few = st.lists(st.integers(0, 1), min_size=0, max_size=3)
conversations = st.lists(st.tuples(few.map(lambda ids: [7, *ids]), few), min_size=1, max_size=8)


def nearest(calls: list[tuple[list[int], list[int]]], index: int) -> int | None:
    """The rule in plain words: the longest exact prefix, the earliest among equals."""
    prompt = calls[index][0]
    ends = [(len(p + s), -i) for i, (p, s) in enumerate(calls) if i != index and len(p) < len(prompt) and prompt[: len(p + s)] == p + s]
    return -max(ends)[1] if ends else None


@settings(max_examples=400)
@given(conversations, st.randoms())
def test_any_order_of_arrival_gives_the_same_graph_and_the_same_tokens(calls: list[tuple[list[int], list[int]]], random: Any) -> None:
    order = list(range(len(calls)))
    random.shuffle(order)
    trace = built(*calls, order=order)
    assert [each.index for each in trace.calls] == list(range(len(calls)))
    trajectory = as_trajectory(trace)
    for index, (prompt, sampled) in enumerate(calls):
        linked = trace.calls[index]
        expected = nearest(calls, index)
        assert (linked.parent_id is None) == (expected is None)
        if linked.parent_id is not None and expected is not None:
            chosen = int(linked.parent_id[1:])
            assert calls[chosen][0] + calls[chosen][1] == calls[expected][0] + calls[expected][1]
        assert trajectory.prompt_ids(linked.id) == prompt
        assert list(linked.sampled_ids) == sampled


def test_a_child_that_arrives_before_its_parent_is_linked_to_it() -> None:
    chain = ([1, 2], [3]), ([1, 2, 3, 4], [5]), ([1, 2, 3, 4, 5, 6], [7])
    for order in ([2, 1, 0], [2, 0, 1], [1, 2, 0]):
        trace = built(*chain, order=order)
        assert parents(trace) == [None, "c0", "c1"]
        assert [list(each.context_ids) for each in trace.calls] == [[1, 2], [4], [6]]


def test_retries_are_siblings_and_a_rewritten_history_is_a_root() -> None:
    trace = built(([1, 2], [3]), ([1, 2], [4]), ([1, 2, 4, 5], [6]), ([1, 9], [6]))
    assert parents(trace) == [None, None, "c1", None]


def test_of_two_equal_replies_the_delivered_one_is_continued() -> None:
    trace = built(([1, 2], [3]), ([1, 2], [3]))
    trace.undelivered(0)
    trace.add(call(2, [5]), [1, 2, 3, 4], [])
    assert trace.calls[2].parent_id == "c1"
    assert [each.delivered for each in trace.calls] == [False, True, True]
    trace.undelivered(99)


def test_calls_without_ids_are_linked_by_their_messages() -> None:
    trace = Trace()
    ask = {"role": "user", "content": "hello"}
    reply = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "run", "arguments": '{"a": 1,"b":2}'}}]}
    echoed = {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "run", "arguments": '{"b":2,"a":1}'}}]}
    trace.add(call(0, [], reply=reply), [], [ask])
    trace.add(call(1, [], reply={"role": "assistant", "content": "x"}), [], [ask])
    trace.add(call(2, []), [], [ask, echoed, {"role": "tool", "content": "ok"}])
    trace.add(call(3, []), [], [ask, {"role": "assistant", "content": "other"}, {"role": "user", "content": "?"}])
    trace.add(call(4, []), [], [ask, {"role": "assistant", "tool_calls": 7}, {"role": "user", "content": "?"}])
    assert parents(trace) == [None, None, "c0", None, None]


histories = st.lists(st.lists(st.sampled_from(["a", "b", "c"]), max_size=6), min_size=1, max_size=12)


@settings(max_examples=200)
@given(histories)
def test_every_request_comes_back_whole_and_repeated_messages_are_stored_once(requests: list[list[str]]) -> None:
    trace = Trace()
    messages = [[{"role": "user", "content": text} for text in request] for request in requests]
    for index, request in enumerate(messages):
        trace.add(call(index, []), [], request)
    trajectory = as_trajectory(trace)
    assert [trajectory.messages(f"c{index}") for index in range(len(messages))] == messages
    for before, after in pairwise(trace.calls):
        if messages[after.index][: len(messages[before.index])] == messages[before.index]:
            assert len(after.messages) <= len(messages[after.index]) - len(messages[before.index])


def test_equal_tool_manifests_share_a_key() -> None:
    trace = Trace()
    keys = [trace.add_tools([{"a": 1, "b": size}]) for size in (1, 2, 1)] + [trace.add_tools([{"b": 1, "a": 1}])]
    assert keys[0] == keys[2] == keys[3] != keys[1]
    assert len(trace.tools) == 2


def test_a_long_session_is_stored_in_little_time_and_memory() -> None:
    """300 turns and 100,000 distinct tokens; whole prompts would be 15 million ids."""
    n_turns, n_new = 300, 333
    ids = [(i * 7919) % 150_000 for i in range(n_turns * n_new)]
    messages = [{"role": "tool", "content": f"{i} " * 300} for i in range(n_turns)]
    trace = Trace()
    tracemalloc.start()
    seconds = 0.0
    for turn in range(n_turns):
        end = (turn + 1) * n_new
        prompt, sampled, request = ids[: end - 60], ids[end - 60 : end], [dict(message) for message in messages[: turn + 1]]
        started = time.process_time()
        trace.add(call(turn, sampled), prompt, request)
        seconds += time.process_time() - started
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert parents(trace) == [None, *(f"c{i}" for i in range(n_turns - 1))]
    assert sum(len(each.context_ids) for each in trace.calls) == n_turns * n_new - 60 * n_turns
    assert size < 20_000_000
    assert seconds < 10, "about 0.6 s; a cost that is quadratic in tokens is far beyond"
