"""What is trained in proportion: the order of parts, the gate, the tasks of a part, and that a resumed run draws the same."""

import json
import random
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given, settings, strategies

from longrein.config import CurriculumConfig
from longrein.model import PublicTask, Task, TaskRef
from longrein.training.curriculum import Curriculum
from longrein.training.mixture import WINDOW, Gate, Mixture, Part, open_positions

WEIGHT = strategies.one_of(strategies.integers(1, 5).map(float), strategies.floats(0.05, 20.0))


def weights(names):
    """Weights for the first one or more of some names."""
    return strategies.lists(WEIGHT, min_size=1, max_size=len(names)).map(lambda values: dict(zip(names, values, strict=False)))


def off(sequence, agents, tasksets, window=20):
    """Return how many groups a window is off its share at most: over parts, agents and task sets."""
    of_agents, of_tasksets = ({name: weight / sum(all_.values()) for name, weight in all_.items()} for all_ in (agents, tasksets))
    of_parts = {Part(agent, taskset): x * y for agent, x in of_agents.items() for taskset, y in of_tasksets.items()}
    worst = 0.0
    for of, shares in (
        (lambda part: part, of_parts),
        (lambda part: part.agent, of_agents),
        (lambda part: part.taskset, of_tasksets),
    ):
        names = [of(part) for part in sequence]
        for start in range(len(names) - window + 1):
            counts = Counter(names[start : start + window])
            worst = max(worst, *(abs(counts[name] - window * share) for name, share in shares.items()))
    return worst


@settings(max_examples=60)
@example({"a": 5.0, "b": 1.0, "c": 1.0}, {"x": 1.0, "y": 1.0, "z": 5.0})  # off by 2.2 without the look at the last 20
@given(agents=weights("abcdef"), tasksets=weights("wxyz"))
def test_any_twenty_positions_match_the_weights_within_ten_percent(agents, tasksets):
    mixture = Mixture(agents, tasksets)
    assert off([mixture.at(position) for position in range(150)], agents, tasksets) <= 2 + 1e-9


@settings(max_examples=40)
@given(agents=weights("ab"))
def test_two_agents_are_never_off_by_more_than_a_half(agents):
    mixture, total, count = Mixture(agents, {"s": 1.0}), sum(agents.values()), Counter()
    for position in range(120):
        count[mixture.at(position).agent] += 1
        assert all(abs(count[name] - (position + 1) * weight / total) <= 0.5 + 1e-6 for name, weight in agents.items())


def test_equal_weights_take_turns_and_a_weight_of_zero_is_never_drawn():
    mixture = Mixture({"a": 2.0, "b": 2.0, "idle": 0.0}, {"s": 0.1})
    assert [mixture.at(position).agent for position in range(6)] == list("ababab")
    assert Mixture({"a": 1.0}, {"s": 1.0}).at(9) == Part("a", "s")
    even = Mixture({"a": 1.0, "b": 1.0}, {"s": 1.0, "t": 1.0})
    assert all(len({even.at(start + i) for i in range(4)}) == 4 for start in range(0, 40, 4)), "four parts, each once in four"


class Groups:
    """Groups under way that finish in any order and are replaced when they say nothing: what the producer does, without sessions."""

    def __init__(self, mixture, place, at_once, draw):
        self.mixture, self.draw, self.at_once = mixture, draw, at_once
        self.gate, self.positions = Gate(mixture, *place), open_positions(*place)
        self.running, self.held, self.left = [], 0, []

    def go(self, n, skips):
        """Let n more groups leave; a finished one is replaced with chance `skips[part]`."""
        enough = len(self.left) + n
        for _ in range(100_000):
            if len(self.left) >= enough:
                return
            while len(self.running) + self.held < self.at_once:
                self.running.append(next(self.positions))
            assert self.running, "all are held and none is under way: nothing would ever leave"
            position = self.running.pop(self.draw.randrange(len(self.running)))
            if self.draw.random() < skips.get(self.mixture.at(position), 0.3):
                self.running.append(position)  # another task of the same part
                continue
            leaving = self.gate.finish(position, position)
            self.held += 1 - len(leaving)
            self.left += leaving
        raise AssertionError("nothing leaves any more")


@settings(max_examples=60)
@given(
    agents=weights("abc"),
    tasksets=weights("xyz"),
    seed=strategies.integers(0, 10_000),
    at_once=strategies.integers(1, 30),
    cut=strategies.integers(1, 40),
)
def test_what_leaves_is_mixed_as_drawn_whatever_is_skipped_or_slow_and_across_a_resume(agents, tasksets, seed, at_once, cut):
    draw, mixture = random.Random(seed), Mixture(agents, tasksets)
    skips = {part: draw.choice([0.0, 0.5, 0.95]) for part in mixture.parts}
    groups = Groups(mixture, (0, ()), at_once, draw)
    groups.go(cut, skips)
    left = groups.left
    first = next(position for position in open_positions(0, left))
    resumed = Groups(Mixture(agents, tasksets), (first, [p for p in left if p > first]), at_once, draw)
    resumed.go(60, skips)
    left = left + resumed.left
    parts = [mixture.at(position) for position in left]
    assert parts == [mixture.at(position) for position in range(len(left))]
    assert off(parts, agents, tasksets) <= 2 + 1e-9
    assert len(set(left)) == len(left)
    gone = set()
    for position in left:
        assert position < next(open_positions(0, gone)) + WINDOW
        gone.add(position)


@settings(max_examples=40)
@given(before=weights("abc"), after=weights("abc"), seed=strategies.integers(0, 10_000), cut=strategies.integers(1, 40))
def test_a_run_that_goes_on_with_other_weights_does_not_hang(before, after, seed, cut):
    groups = Groups(Mixture(before, {"s": 1.0}), (0, ()), 9, random.Random(seed))
    groups.go(cut, {})
    first = next(position for position in open_positions(0, groups.left))
    resumed = Groups(Mixture(after, {"s": 1.0}), (first, [p for p in groups.left if p > first]), 9, random.Random(seed))
    resumed.go(40, {})


def test_a_slow_group_holds_up_no_other_of_its_part_within_the_window():
    gate = Gate(Mixture({"a": 1.0}, {"s": 1.0}), 0, ())
    assert [gate.finish(position, position) for position in range(1, 9)] == [[1], [2], [3], [4], [5], [6], [7], []]
    assert gate.finish(0, 0) == [0, 8]


def test_a_slow_group_holds_up_another_part_when_it_is_its_turn():
    gate = Gate(Mixture({"a": 1.0, "b": 1.0}, {"s": 1.0}), 0, ())  # a b a b a b
    assert [gate.finish(position, position) for position in (1, 3, 5)] == [[], [], []]
    assert gate.finish(2, 2) == [2, 1]
    assert gate.finish(0, 0) == [0, 3]


# --- the tasks of a part


def tasks(n, taskset="s"):
    return [Task(f"{taskset}{i}", f"d{i}", PublicTask("p"), TaskRef(taskset, f"{taskset}{i}"), "v") for i in range(n)]


def curriculum(n=4, agents=("a",), *, skip_after=2, revisit=2, seed=0, **options):
    mixture = Mixture(dict.fromkeys(agents, 1.0), {"s": 1.0})
    return Curriculum(mixture, tasks(n), CurriculumConfig(skip_after, revisit), seed, **options)


def test_every_pass_asks_every_agent_on_every_task_once_and_agents_meet_tasks_together():
    order = curriculum(5, "ab", skip_after=0, seed=3)
    draws = [order.draw(position) for position in range(20)]
    for number in (0, 1):
        one = draws[10 * number : 10 * number + 10]
        assert sorted((draw.task.id, draw.part.agent) for draw in one) == sorted((f"s{i}", agent) for i in range(5) for agent in "ab")
        assert {draw.visit for draw in one} == {number}
        assert [draw.task.id for draw in one[::2]] == [draw.task.id for draw in one[1::2]]
    assert [draw.task.id for draw in draws[:10]] != [draw.task.id for draw in draws[10:]]


def play(order, solved, n, start=0):
    """Draw n groups of four, tell their results, and return the task ids."""
    seen = []
    for position in range(start, start + n):
        draw = order.draw(position)
        order.finished(draw, solved.get(draw.task.id, [True, False, None, True]))
        seen.append(draw.task.id)
    return seen


@pytest.mark.parametrize("passed", [[True] * 4, [False] * 4, [True, True, None, None]])
def test_a_task_that_is_always_or_never_solved_rests_and_is_visited_again(passed):
    order = curriculum(4, skip_after=2, revisit=2)
    seen = play(order, {"s1": passed}, 8)
    assert seen.count("s1") == 2, "no task rests after one group"
    second = max(i for i, task in enumerate(seen) if task == "s1")
    assert order.resting(Part("a", "s")) == (1, 4)
    later = play(order, {"s1": passed}, 40, start=8)
    again = [8 + i for i, task in enumerate(later) if task == "s1"]
    assert second + 8 < again[0] <= second + 8 + 7, "after twice four groups, in the pass that is due then"
    assert all(b - a > 8 for a, b in pairwise(again)), "and it rests again at once"
    woken = play(order, {}, 24, start=48)
    assert woken.count("s1") >= 4, "a task that has variance again is back"


@pytest.mark.parametrize("passed", [[True, False, None, None], [True, None, None, None], [None] * 4])
def test_a_task_with_variance_or_without_two_scored_rollouts_never_rests(passed):
    order = curriculum(4, skip_after=1)
    assert Counter(play(order, {"s1": passed}, 16)) == Counter({f"s{i}": 4 for i in range(4)})


def test_always_and_never_are_no_streak_together():
    order = curriculum(1, skip_after=2)
    for position, passed in enumerate([[True] * 2, [False] * 2, [True] * 2]):
        order.finished(order.draw(position), passed)
    assert order.resting(Part("a", "s")) == (0, 1)


def test_without_the_rule_nothing_rests():
    order = curriculum(3, skip_after=0)
    assert Counter(play(order, {f"s{i}": [False] * 4 for i in range(3)}, 9)) == Counter({f"s{i}": 3 for i in range(3)})
    assert order.resting(Part("a", "s")) == (0, 3)


def test_when_every_task_rests_the_next_one_comes_anyway():
    order = curriculum(3, skip_after=1, revisit=50)
    draws = [order.draw(position) for position in range(3)]
    for draw in draws:
        order.finished(draw, [False] * 4)
    assert order.resting(Part("a", "s")) == (3, 3)
    after = [order.draw(position) for position in range(3, 9)]
    assert len({(draw.task.id, draw.visit) for draw in draws + after}) == 9, "with other seeds"


def test_a_rest_is_the_agents_own():
    order = curriculum(2, "ab", skip_after=1)
    draw = order.draw(0)
    order.finished(draw, [False] * 4)
    assert [order.resting(Part(agent, "s")) for agent in "ab"] == [(1, 2), (0, 2)]


@settings(max_examples=80)
@given(
    seed=strategies.integers(0, 10_000),
    n=strategies.integers(1, 9),
    skip_after=strategies.integers(0, 3),
    revisit=strategies.integers(1, 4),
    cut=strategies.integers(0, 60),
    weight=WEIGHT,
)
def test_a_restored_curriculum_draws_what_the_uninterrupted_one_does(seed, n, skip_after, revisit, cut, weight):
    def new(**options):
        mixture = Mixture({"a": weight, "b": 1.0}, {"s": 1.0, "t": 2.0})
        return Curriculum(mixture, tasks(n) + tasks(n + 2, "t"), CurriculumConfig(skip_after, revisit), seed, **options)

    def go(order, positions, draw):
        """Draw with at most five under way, finished in any order; one in three is drawn again."""
        log, under_way = [], []
        for position in positions:
            under_way.append(order.draw(position))
            log.append(under_way[-1])
            while len(under_way) > draw.randrange(5):
                done = under_way.pop(draw.randrange(len(under_way)))
                order.finished(done, [draw.random() < 0.2 + 0.6 * (hash(done.task.id[-1]) % 2)] * 3)
                if draw.random() < 0.3:
                    log.append(order.draw(done.position))
        return log

    whole, draw = new(), random.Random(seed)
    go(whole, range(cut), draw)
    saved, dice = json.loads(json.dumps(whole.state())), draw.getstate()
    rest = go(whole, range(cut, cut + 60), draw)
    restored = new(state=saved)
    draw.setstate(dice)
    assert go(restored, range(cut, cut + 60), draw) == rest


def test_what_was_under_way_is_made_again_with_its_task_and_seeds_and_the_walk_goes_on():
    order = curriculum(4, skip_after=1)
    draws = [order.draw(position) for position in range(6)]
    state = json.loads(json.dumps(order.state()))
    again = curriculum(4, skip_after=1, state=state, again=[(draw.position, draw.task.id, draw.visit) for draw in draws[3:5]])
    assert [again.draw(position) for position in (3, 4, 6)] == [*draws[3:5], order.draw(6)]
    assert again.draw(3) == order.draw(3), "a second time another task"
    gone = curriculum(4, state=state, again=[(3, "no longer there", 0)])
    assert gone.draw(3).task.id in {f"s{i}" for i in range(4)}
