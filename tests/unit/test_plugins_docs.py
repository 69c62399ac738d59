"""docs/hooks.md is the contract: it has every hook with its exact signature, and every hook has a test."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from longrein import hookspecs
from longrein.hookspecs import OVERRIDES, REGISTRIES
from longrein.model import Action, Outcome, Reward, Rollout, SessionResult, Trajectory, Verdict
from longrein.plugins import PluginHost
from longrein.reward.builtin import Binary

DOC = (Path(__file__).parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")
TESTS = (Path(__file__).parent / "test_plugins_hooks.py").read_text(encoding="utf-8")


def test_the_lists_name_every_hook() -> None:
    specs = {name for name in vars(hookspecs) if name.startswith("longrein_")}
    assert specs == {*REGISTRIES, *OVERRIDES}


@pytest.mark.parametrize("hook", [*REGISTRIES, *OVERRIDES])
def test_a_hook_is_documented_as_it_is_and_has_a_test(hook: str) -> None:
    signature = str(inspect.signature(getattr(hookspecs, hook))).replace("'", "")
    assert f"### {hook}\n\n```python\ndef {hook}{signature}\n```\n" in DOC
    assert re.search(rf"(def|kind\}}) {hook}\(", TESTS), f"no test plugin implements {hook}"


def test_the_document_has_no_hook_that_is_gone() -> None:
    assert set(re.findall(r"longrein_[a-z_]+", DOC)) <= {*REGISTRIES, *OVERRIDES}


async def test_the_first_example_works(tmp_path: Path) -> None:
    code = DOC.split("```python\n")[1].split("```")[0]
    (tmp_path / "my_rewards.py").write_text(code, encoding="utf-8")
    host = PluginHost.load(["./my_rewards.py"], folder=tmp_path)
    ended = SessionResult("s", "aider", Outcome("completed"), Trajectory())
    rollout = Rollout("r", "g", "aider", "practice", "t", "d", 0, 0, ended, Verdict("passed", 1.0), (Action("run"),))
    reward = await host.compute_reward(rollout, Binary(), [])
    assert reward == Reward(1.1, {"passed": 1.0, "short": 0.1}, decided_by="plugin:my_rewards.py")


def test_the_stated_version_is_the_real_one() -> None:
    assert f"It is **{hookspecs.SDK_VERSION}**." in DOC
