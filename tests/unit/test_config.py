"""Configs: what fits, and what bad input gets."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from longrein.config import Config, from_mapping, load, task_sources
from longrein.errors import ConfigError, UnknownNameError
from longrein.rollout.record import config_toml

BASE = {"taskset": "practice", "agents": {"opencode": {}, "aider": {"edit_format": "whole"}}}


def test_a_bare_task_set_and_two_agents_make_a_config_with_defaults() -> None:
    config = from_mapping(BASE)
    assert config.taskset.name == "practice"
    assert list(config.agents) == ["opencode", "aider"]
    assert config.train.group_size == 8


@pytest.mark.parametrize(
    ("item", "value"),
    [
        ("train.max_steps=3", 3),
        ("train.learning_rate=1", 1.0),
        ("run.name=hello world", "hello world"),
        ("train.report_to=['trackio']", ("trackio",)),
    ],
)
def test_set_overrides_a_key(item: str, value: object) -> None:
    config = from_mapping(BASE, [item])
    section, key = item.split("=")[0].split(".")
    assert getattr(getattr(config, section), key) == value


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ("train.max_step=3", ["'max_step'", "did you mean 'max_steps'?"]),
        ("trian.max_steps=3", ["'trian'", "did you mean 'train'?"]),
        ("train.max_steps='many'", ["train", "max_steps", "a whole number", "'many'"]),
        ("train.max_steps=0", ["max_steps", "> 0"]),
        ("train.max_steps=true", ["a whole number", "True"]),
        ("train.max_staleness=0", ["max_staleness", ">= 1"]),
        ("turns.policy='last_turns'", ["'last_turns'", "did you mean 'last_turn'?"]),
        ("train.sampling=3", ["train.sampling", "must be a table"]),
        ("sandbox.limits.memory=3", ["'memory'", "did you mean 'memory_mb'?"]),
        ("no equals sign", ["key=value", "'no equals sign'"]),
    ],
)
def test_bad_input_names_what_was_given_and_what_is_known(change: str, parts: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        from_mapping(BASE, [change])
    for part in parts:
        assert part in str(error.value)
    assert error.value.exit_code == 2


def test_unknown_names_are_lookup_errors_too() -> None:
    with pytest.raises(UnknownNameError) as error:
        from_mapping(BASE, ["train.max_step=3"])
    assert isinstance(error.value, LookupError)
    assert "max_steps" in error.value.known


def test_a_config_without_agents_or_task_set_says_so() -> None:
    with pytest.raises(ConfigError, match=r"names no agent.*\[agents.opencode\]"):
        from_mapping({"taskset": "practice", "agents": {}})
    with pytest.raises(ConfigError, match="needs taskset"):
        from_mapping({"agents": {"nop": {}}})


SEVERAL = {"agents": {"nop": {}}, "tasksets": {"easy": "practice", "hard": {"name": "deepcoder:taco", "limit": 5}}}


def test_several_task_sets_have_names_and_a_single_one_has_none() -> None:
    config = from_mapping(SEVERAL | {"eval": {"tasksets": {"held-out": "practice"}}}, ["tasksets.easy.limit=3"])
    assert config.eval
    assert {name: (section.name, section.limit) for name, section in task_sources(config).items()} == {
        "easy": ("practice", 3),
        "hard": ("deepcoder:taco", 5),
    }
    assert list(task_sources(config.eval)) == ["held-out"]
    assert list(task_sources(from_mapping(BASE))) == [""]
    assert from_mapping(tomllib.loads(config_toml(config))) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (SEVERAL | {"taskset": "practice"}, r"has \[taskset\] \('practice'\) and \[tasksets\] \(easy, hard\); keep one"),
        (SEVERAL | {"eval": {}}, r"needs taskset: \[eval.taskset\], or \[eval.tasksets.NAME\]"),
        (SEVERAL | {"tasksets": {}}, r"needs taskset: \[taskset\], or \[tasksets.NAME\]"),
        (SEVERAL | {"tasksets": {"a.b": "practice"}}, r"\[tasksets\] has the name 'a.b', which begins task ids; use letters"),
        (SEVERAL | {"tasksets": {"a": {"name": "practice", "weight": 2}}}, r"unknown key in config.tasksets.a 'weight'"),
        (SEVERAL | {"train": {"mixture": {"tasksets": {"easy": -1}}}}, r"tasksets.easy is a weight and must be 0 or more, got -1.0"),
        (SEVERAL | {"train": {"mixture": {"agents": {"nop": float("nan")}}}}, "agents.nop is a weight and must be 0 or more, got nan"),
        (SEVERAL | {"train": {"mixture": {"taskset": {}}}}, "did you mean 'tasksets'?"),
        (SEVERAL | {"train": {"curriculum": {"skip_after": -1}}}, "skip_after"),
    ],
)
def test_task_sets_and_weights_that_do_not_fit(values: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        from_mapping(values)


def test_files_that_cannot_be_read_or_are_not_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent.toml: No such file"):
        load(tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("[train\n")
    with pytest.raises(ConfigError, match=r"broken.toml is not TOML"):
        load(tmp_path / "broken.toml")


def test_the_resolved_config_reads_back_the_same(tmp_path: Path) -> None:
    config = from_mapping(BASE | {"eval": {"taskset": "practice", "samples": 2}}, ["run.out='somewhere'", "taskset.limit=3"])
    (tmp_path / "config.toml").write_text(config_toml(config))
    again: Config = load(tmp_path / "config.toml")
    assert again == config
