"""Blending with the verifier, agreement on fixed cases, and the distribution's README."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.ruler.conftest import score, worth

from longrein.config import from_mapping
from longrein.model import Reward
from longrein.plugins import PluginHost
from longrein.rollout.check import check_names
from longrein_ruler.agreement import agreement
from longrein_ruler.blend import blend
from longrein_ruler.options import RulerOptions

README = (Path(__file__).parents[3] / "verifiers" / "ruler" / "README.md").read_text(encoding="utf-8")
UNIT = st.floats(0, 1)
ANY = st.floats(-10, 10)


@given(UNIT.filter(bool), UNIT, ANY, UNIT, ANY)
def test_verifier_first_never_ranks_a_passed_rollout_below_another(
    weight: float, judge_of_passed: float, verifier_of_passed: float, judge_of_failed: float, verifier_of_failed: float
) -> None:
    passed = blend("verifier_first", weight, judge=judge_of_passed, verifier=Reward(verifier_of_passed), passed=True)
    failed = blend("verifier_first", weight, judge=judge_of_failed, verifier=Reward(verifier_of_failed), passed=False)
    assert passed.value >= failed.value - 1e-9, "as equal as GRPO takes equal"
    assert 0.0 <= failed.value <= 0.5 + 1e-9
    assert 0.5 - 1e-9 <= passed.value <= 1.0 + 1e-9


@given(st.sampled_from(["verifier_first", "weighted", "judge"]), UNIT.filter(bool), UNIT, ANY, st.booleans())
def test_parts_add_up_and_the_judge_ranks_within_a_side(how: str, weight: float, judge: float, verifier: float, passed: bool) -> None:
    made = blend(how, weight, judge=judge, verifier=Reward(verifier), passed=passed)  # type: ignore[arg-type]
    better = blend(how, weight, judge=1.0, verifier=Reward(verifier), passed=passed)  # type: ignore[arg-type]
    assert made.value == pytest.approx(sum(made.parts.values()))
    assert better.value >= made.value


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.75 + 0.025, 0.225, 0.125]),
        ({"weight": 1.0}, [0.55, 0.45, 0.25]),
        ({"blend": "weighted"}, [0.55, 0.45, 0.25]),
        ({"blend": "weighted", "weight": 0.8}, [0.28, 0.72, 0.4]),
        ({"blend": "judge"}, [0.1, 0.9, 0.5]),
    ],
)
async def test_each_blend_of_one_that_passed_and_two_that_the_judge_likes_better(ruler, options, expected):
    rewards = await score(ruler(**options), worth(0.1, 0.9, 0.5, status=["passed"]))
    assert [reward.value for reward in rewards.values()] == pytest.approx(expected)
    assert set(rewards["r0"].parts) == {
        "verifier_first": {"passed", "verifier", "judge"}, "weighted": {"verifier", "judge"}, "judge": {"judge"}
    }[options.get("blend", "verifier_first")]  # fmt: skip


@pytest.mark.parametrize(
    ("first", "second", "rho"),
    [
        ([0.1, 0.2, 0.3, 0.4], [0.2, 0.4, 0.6, 0.8], 1.0),
        ([0.1, 0.2, 0.3, 0.4], [0.9, 0.5, 0.4, 0.1], -1.0),
        ([0.1, 0.2, 0.3, 0.4, 0.5], [0.2, 0.1, 0.4, 0.3, 0.5], 0.8),  # 1 - 6 x 4 / (5 x 24)
        ([0.1, 0.2, 0.2, 0.4], [0.1, 0.2, 0.3, 0.4], 0.9486832980505138),  # mid-ranks: 4.5 / sqrt(4.5 x 5)
        ([0.5, 0.5, 0.5], [0.1, 0.2, 0.3], None),
        ([0.1, 0.2], [0.5, 0.5], None),
    ],
)
def test_agreement_is_the_rank_correlation(first: list[float], second: list[float], rho: float | None) -> None:
    assert agreement(first, second) == (None if rho is None else pytest.approx(rho))


def test_the_config_of_the_readme_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_API_KEY", "k")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    config = from_mapping({"taskset": "practice", "agents": {"nop": {}}} | tomllib.loads(block))
    assert config.reward.name == "ruler"
    check_names(config, PluginHost.load())


def test_the_readme_has_every_option_with_its_default() -> None:
    documented = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", README, re.MULTILINE))
    assert documented == {field.name: shown(field.default) for field in attrs.fields(RulerOptions)}


def shown(default: Any) -> str:
    default = default.factory() if isinstance(default, attrs.Factory) else default  # type: ignore[arg-type]
    if default is attrs.NOTHING or default is None:
        return "none" if default is None else "required"
    return f"`{json.dumps(str(default) if isinstance(default, Path) else default)}`"
