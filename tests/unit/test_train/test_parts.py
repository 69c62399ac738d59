"""The parts of training that need no model: advantages, order and look-ahead, the row buffer, resume state, settings."""

import json
import queue
import random

import pytest
from hypothesis import given, settings, strategies

from longrein.config import from_mapping
from longrein.errors import ConfigError, RecordError, RunStopped, UnknownNameError
from longrein.model import Row
from longrein.rollout.summary import Cell
from longrein.training import advantages
from longrein.training import settings as trl_settings
from longrein.training import state as states
from longrein.training.buffer import RowBuffer
from longrein.training.messages import GroupDone, TrainRow
from longrein.training.producer import Place
from longrein.training.schedule import LookAhead
from longrein.training.state import TrainState


@pytest.fixture(scope="module", autouse=True)
def trl():
    """Import TRL once, without its warning."""
    trl_settings.trl_fields()


def config(**train):
    return from_mapping({"taskset": "practice", "agents": {"a": {}}, "train": train})


# --- advantages


def test_none_rewards_take_no_part():
    score = advantages.score([1.0, None, 0.0, None])
    assert score.baseline == 0.5
    assert score.advantages == (pytest.approx(1.0, abs=1e-6), None, pytest.approx(-1.0, abs=1e-6), None)
    assert score.skipped is None


def test_advantages_are_those_of_trl():
    """TRL 1.16: (scored - scored.mean()) / (scored.std() + 1e-8) with numpy's population std."""
    import numpy as np

    rewards = [0.1, 0.7, 0.7, 1.0]
    scored = np.array(rewards)
    assert advantages.score(rewards).advantages == pytest.approx((scored - scored.mean()) / (scored.std() + 1e-8))


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ([None, None, None], "too_few_scored"),
        ([1.0, None], "too_few_scored"),
        ([], "too_few_scored"),
        ([0.0, 0.0, 0.0], "no_variance"),
        ([0.1 + 0.2, 0.3, None], "no_variance"),
    ],
)
def test_groups_that_say_nothing_are_skipped(rewards, why):
    score = advantages.score(rewards)
    assert score.skipped == why
    assert score.advantages == (None,) * len(rewards)


def test_an_agents_scale_makes_its_advantages_average_one_and_keeps_what_groups_differ_in():
    scales = advantages.AgentScales()
    rewards = {"small": ([0.0, 0.1], [0.0, 0.3]), "large": ([0.0, 1.0], [0.0, 3.0])}
    squares = {}
    for agent, groups in rewards.items():
        made = []
        for values in groups:
            score, used = scales.scale(advantages.score(values), values, [agent] * 2)
            made.append(score.advantages[1])
        assert made[0] == pytest.approx(1.0, abs=1e-6), "the first group is scaled by itself"
        assert used == {agent: pytest.approx(((groups[0][1] ** 2 + groups[1][1] ** 2) / 8) ** 0.5)}
        squares[agent] = made
    assert squares["small"] == pytest.approx(squares["large"], abs=1e-5), "a scale ten times as large changes nothing"
    again = advantages.AgentScales(json.loads(json.dumps(scales.state())))
    assert again.scale(advantages.score([0.0, 1.0]), [0.0, 1.0], ["large"] * 2) == scales.scale(
        advantages.score([0.0, 1.0]), [0.0, 1.0], ["large"] * 2
    )


def test_in_a_group_of_several_agents_each_has_its_scale_and_all_have_one_baseline():
    rewards = [0.0, 1.0, 0.4, None]
    score, used = advantages.AgentScales().scale(advantages.score(rewards), rewards, ["a", "a", "b", "c"])
    baseline = 1.4 / 3
    spread = ((baseline**2 + (1 - baseline) ** 2) / 2) ** 0.5
    assert used == {"a": pytest.approx(spread), "b": pytest.approx(baseline - 0.4)}
    assert score.advantages == (
        pytest.approx(-baseline / spread),
        pytest.approx((1 - baseline) / spread),
        pytest.approx(-1, abs=1e-6),
        None,
    )


def test_an_agents_scale_forgets_what_is_twenty_groups_old():
    scales = advantages.AgentScales()
    for reward in [100.0] + [1.0] * 20:
        score, used = scales.scale(advantages.score([0.0, reward]), [0.0, reward], ["a", "a"])
    assert used == {"a": pytest.approx(0.5)}
    assert score.baseline == 0.5


def test_weights_even_out_lengths_within_bounds():
    weights = advantages.rollout_weights({"short": 10, "long": 30})
    assert weights == {"short": 2.0, "long": pytest.approx(2 / 3)}
    extreme = advantages.rollout_weights({"one": 1, "many": 10_000})
    assert extreme["one"] == 8.0
    assert extreme["many"] == pytest.approx(5000.5 / 10_000)


# --- look-ahead and rows


def make_row(version):
    return Row(rollout_id="r", agent="a", input_ids=[1, 2], mask=[0, 1], logprobs=[0.0, -1.0], version=version)


def group(position, versions, number=None, **drawn):
    rows = tuple(TrainRow(make_row(version), 1.0) for version in versions)
    return GroupDone(position, position if number is None else number, rows, **drawn)


@settings(max_examples=60)
@given(
    seed=strategies.integers(0, 10_000),
    max_staleness=strategies.integers(1, 4),
    rows_per_step=strategies.integers(1, 6),
    group_size=strategies.integers(2, 5),
    drift=strategies.booleans(),
)
def test_the_look_ahead_never_hangs_and_staleness_is_that_at_the_loss(seed, max_staleness, rows_per_step, group_size, drift):
    """A trainer that fetches batch k+1 before step k, a worker whose groups give a row, or 1 or 2 for each rollout, in any order."""
    draw, steps = random.Random(seed), 5
    buffer = RowBuffer(TrainState(version=7), rows_per_step=rows_per_step, max_staleness=max_staleness, max_steps=steps)
    ahead = LookAhead(version=8, **buffer.look_ahead())
    buffer.watch(lambda: None, dropped=lambda rows: setattr(ahead, "rows", ahead.rows - rows))
    under_way, position, batches, versions = [], 0, 0, []
    got = []
    for _ in range(10_000):
        try:
            while len(got) < rows_per_step:
                got.append(buffer.get(block=False))
            batches, got = batches + 1, [versions.append([row.model_version for row in got])][:0]
            if batches > 1:
                figures = buffer.step_done()
                trained = versions[batches - 2]
                assert figures["staleness/mean"] == pytest.approx(sum(ahead.version - v for v in trained) / rows_per_step)
                assert figures["staleness/max"] <= max_staleness
                ahead.version += 1
            if batches == steps + 1:
                break
            continue
        except queue.Empty:
            pass
        while ahead.may_start():
            under_way.append((position, ahead.version))
            ahead.expected += group_size
            position += 1
        assert under_way, "neither side can go on"
        place, begun = under_way.pop(draw.randrange(len(under_way)))
        n_rows = draw.choice([1, group_size, group_size, 2 * group_size])
        ahead.expected -= group_size
        ahead.rows += n_rows
        buffer.add(group(place, [begun - (draw.random() < 0.1 if drift else 0) for _ in range(n_rows)]))
    assert batches == steps + 1


def test_rows_too_old_at_the_loss_are_dropped_counted_and_replaced():
    told = []
    buffer = RowBuffer(TrainState(), rows_per_step=2, max_staleness=1, max_steps=3)
    buffer.watch(lambda: None, dropped=told.append)
    buffer.add(group(0, [1, 1, 1, 1, 1, 2]))
    assert [buffer.get(timeout=1).model_version for _ in range(5)] == [1, 1, 1, 1, 2]  # the fifth would be two versions behind
    assert told == [1]
    assert buffer.step_done() == {"staleness/mean": 0.0, "staleness/max": 0.0, "staleness/dropped_rows_total": 1.0}
    assert buffer.step_done()["staleness/mean"] == 1.0


def test_past_the_last_step_the_last_row_comes_again():
    buffer = RowBuffer(TrainState(step=4), rows_per_step=2, max_staleness=1, max_steps=5)
    buffer.add(group(0, [1, 1]))
    rows = [buffer.get(timeout=1) for _ in range(4)]
    assert rows[2] is rows[3] is rows[1]


def test_rows_become_what_trl_takes():
    buffer = RowBuffer(TrainState(), rows_per_step=1, max_staleness=1, max_steps=1)
    buffer.add(group(0, [1], number=1_000_003))
    sample = buffer.get(timeout=1)
    assert (sample.input_ids.tolist(), sample.completion_mask.tolist(), sample.group_id) == ([1, 2], [0, 1], 1_000_003)
    assert sample.old_log_probs.tolist() == [0.0, -1.0]
    assert sample.metrics == {}, "TRL would average them over the rows that arrive"


def test_get_raises_what_ended_the_worker_even_with_rows_waiting():
    def ended():
        raise RunStopped("the engine process died")

    buffer = RowBuffer(TrainState(), rows_per_step=1, max_staleness=1, max_steps=1)
    buffer.add(group(0, [1]))
    buffer.watch(ended, dropped=lambda rows: None)
    with pytest.raises(RunStopped, match="died"):
        buffer.get(timeout=1)


def test_a_place_leaves_out_groups_whose_rows_were_not_all_trained():
    start = Place(10, (12, 13), again=((10, "old", 1), (14, "older", 1)))
    buffer = RowBuffer(TrainState(place=start, groups_stepped=3), rows_per_step=2, max_staleness=4, max_steps=9)
    assert buffer.place() == start
    buffer.add(group(11, [1, 1], drawn=("t11", 0), open=((10, "old", 1), (14, "t14", 2)), state={"at": 1}))
    buffer.add(group(10, [1, 1, 1], drawn=("t10", 2), open=((14, "new", 2),), state={"at": 2}))
    for _ in range(4):
        buffer.get(timeout=1)
    assert buffer.place() == Place(10, (12, 13), ((10, "t10", 2), (11, "t11", 0), (14, "new", 2)), {"at": 2})
    buffer.step_done()
    assert buffer.place() == Place(10, (11, 12, 13), ((10, "t10", 2), (14, "new", 2)), {"at": 2})
    buffer.step_done()
    assert buffer.place().done == (11, 12, 13), "one row of group 10 is not trained"
    assert buffer.groups_stepped == 4
    buffer.add(group(14, [1], drawn=("new", 2), state={"at": 3}))
    for _ in range(2):
        buffer.get(timeout=1)
    buffer.step_done()
    assert buffer.place() == Place(15, (), (), {"at": 3})


# --- resume state


def checkpoint(folder, step, whole=True):
    path = folder / "checkpoints" / f"checkpoint-{step}"
    path.mkdir(parents=True)
    (path / "trainer_state.json").write_text("{}")
    if whole:
        place = Place(4, (6,), ((4, "t4", 1), (5, "t1", 0)), {"curriculum": {"a/s": {"steps": 7}}})
        states.write(TrainState(step, step + 1, place=place, evals={"eval:0": (Cell("a", "t", "eval:0", None, "completed", 0.5),)}), path)
    return path


def test_the_last_whole_checkpoint_is_found_and_read_back(tmp_path):
    (tmp_path / "config.toml").write_text("")
    assert states.last_checkpoint(tmp_path) is None
    checkpoint(tmp_path, 2)
    whole = checkpoint(tmp_path, 10)
    checkpoint(tmp_path, 12, whole=False)  # killed before the last file
    assert states.last_checkpoint(tmp_path) == whole
    state = states.read(whole)
    assert (state.step, state.version) == (10, 11)
    assert state.evals["eval:0"][0].passed is None
    assert state.place == Place(4, (6,), ((4, "t4", 1), (5, "t1", 0)), {"curriculum": {"a/s": {"steps": 7}}})


def test_a_state_from_before_the_curriculum_had_one_is_read(tmp_path):
    path = checkpoint(tmp_path, 1)
    values = json.loads((path / states.NAME).read_text())
    values["place"] = {"position": 3, "done": [5]}
    for cell in values["evals"]["eval:0"]:
        del cell["taskset"]
    (path / states.NAME).write_text(json.dumps(values))
    assert states.read(path).place == Place(3, (5,))


def test_resuming_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"it holds no run \(there is no config.toml\)"):
        states.last_checkpoint(tmp_path)


def test_a_damaged_or_newer_state_is_refused(tmp_path):
    path = checkpoint(tmp_path, 1)
    (path / states.NAME).write_text('{"schema_version": 2}')
    with pytest.raises(RecordError, match="schema_version 2, this longrein reads 1"):
        states.read(path)
    (path / states.NAME).write_text('{"schema_version": 1, "step"')
    with pytest.raises(RecordError, match="cannot be read"):
        states.read(path)


def test_every_start_numbers_its_groups_from_a_block_of_its_own(tmp_path):
    assert [states.next_block(tmp_path) for _ in range(3)] == [0, 1_000_000, 2_000_000]


# --- settings


@pytest.mark.parametrize(("name", "value"), [("top_p", 0.9), ("top_k", 40), ("min_p", 0.1), ("repetition_penalty", 1.1)])
def test_sampling_that_the_ratio_cannot_account_for_is_refused(name, value):
    with pytest.raises(ConfigError, match=rf"\[train.sampling\] {name} = {value} cannot be trained with.*importance ratio"):
        trl_settings.check(config(sampling={name: value}))


def test_no_op_sampling_and_any_temperature_pass():
    trl_settings.check(config(sampling={"temperature": 0.7, "top_p": 1.0, "top_k": 0, "min_p": 0.0}))


def test_trl_fields_are_checked_by_name():
    trl_settings.check(config(trl={"epsilon_high": 0.28, "weight_decay": 0.1}))
    with pytest.raises(UnknownNameError, match="did you mean 'epsilon_high'"):
        trl_settings.check(config(trl={"epsilon_hihg": 0.28}))
    with pytest.raises(ConfigError, match=r"\[train.trl\] max_steps is longrein's: set \[train\] max_steps"):
        trl_settings.check(config(trl={"max_steps": 5}))
    with pytest.raises(UnknownNameError, match="did you mean 'learning_rate'"):
        trl_settings.check(config(trl={"learning_rat": 0.1}))
    with pytest.raises(ConfigError, match=r"\[train.trl\] epsilon must be a number, got 'x'"):
        trl_settings.check(config(trl={"epsilon": "x"}))


def test_a_token_never_stands_in_a_config():
    with pytest.raises(ConfigError, match="HF_TOKEN") as error:
        trl_settings.check(config(trl={"hub_token": "hf_secret"}))
    assert "hf_secret" not in str(error.value)


def test_every_owned_field_exists():
    assert set(trl_settings.OWNED) <= set(trl_settings.trl_fields())


def test_no_staleness_is_refused():
    with pytest.raises(ConfigError, match="max_staleness"):
        trl_settings.check(config(max_staleness=0))


def test_arguments_of_the_trainer(tmp_path):
    args = trl_settings.make_args(
        config(rows_per_step=12, token_budget=16_384, trl={"epsilon_high": 0.28}, sampling={"temperature": 0.7}),
        run_folder=tmp_path,
        processes=1,
    )
    assert (args.per_device_train_batch_size, args.gradient_accumulation_steps) == (4, 3), "4 x 16,384 tokens in one forward pass"
    assert (args.max_steps, args.token_budget, args.epsilon_high, args.temperature) == (10, 0, 0.28, 0.7)
    assert args.report_to == []
    with pytest.raises(ConfigError, match="rows_per_step 12 must be a multiple"):
        trl_settings.make_args(config(rows_per_step=12, trl={"per_device_train_batch_size": 5}), run_folder=tmp_path, processes=1)
    with pytest.raises(ConfigError, match=r"\[train.trl\]"):
        trl_settings.make_args(config(trl={"lr_scheduler_type": "never"}), run_folder=tmp_path, processes=1)
