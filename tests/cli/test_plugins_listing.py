"""`longrein plugins`: a readable line for every plugin, however bad, and none stops the others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HOOK = "from longrein import hookimpl\n@hookimpl\n"
AGENT = """from longrein import hookimpl
from longrein.agent import AgentAdapter, LaunchPlan

class Tiny(AgentAdapter):
    name = "tiny"
    def launch(self, session):
        return LaunchPlan(["true"])

@hookimpl
def longrein_agents():
    return [Tiny]
"""
PLUGINS = {
    "lr_broken": "1 / 0",
    "lr_misspelt": HOOK + "def longrein_agentz(): return []",
    "lr_new": "LONGREIN_SDK = 99\n" + AGENT.replace("tiny", "new"),
    "lr_one": AGENT,
    "lr_two": AGENT,
    "lr_blocked": "raise SystemExit('imported')",
    "lr_sound": "LONGREIN_SDK = 1\n" + AGENT.replace("tiny", "sound"),
}
EXPECTED = {
    "lr_broken": ("failed", "cannot be loaded: ZeroDivisionError: division by zero (lr_broken.py:1)"),
    "lr_misspelt": ("failed", "implements an unknown hook 'longrein_agentz'; did you mean 'longrein_agents'?"),
    "lr_new": ("failed", "is too new: written for SDK 99, this longrein has SDK 1; upgrade longrein"),
    "lr_one": ("failed", "agent 'tiny' is registered by lr_one (lr-one 2.5) and lr_two (lr-two 2.5); none of them answers"),
    "lr_two": ("failed", "agent 'tiny' is registered by lr_one (lr-one 2.5) and lr_two (lr-two 2.5); none of them answers"),
    "lr_blocked": ("blocked", "named in LONGREIN_PLUGINS_DISABLE"),
    "lr_sound": ("ok", ""),
}


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which the plugins are installed."""
    for name, text in PLUGINS.items():
        info = tmp_path / f"{name}-2.5.dist-info"
        info.mkdir()
        (tmp_path / f"{name}.py").write_text(text)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 2.5\n")
        (info / "entry_points.txt").write_text(f"[longrein]\n{name} = {name}\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path), "LONGREIN_PLUGINS_DISABLE": "lr_blocked"}


def plugins(environment: dict[str, str], *arguments: str) -> str:
    """Run the command."""
    command = [sys.executable, "-m", "longrein", "plugins", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_plugin_has_a_line_with_its_state_and_reason(environment: dict[str, str]) -> None:
    listed: dict[str, Any] = {plugin["name"]: plugin for plugin in json.loads(plugins(environment, "--json"))}
    assert listed["builtin"]["state"] == listed["opencode"]["state"] == "ok"
    for name, (state, reason) in EXPECTED.items():
        found = listed[name]
        assert (found["distribution"], found["version"], found["kind"]) == (name.replace("_", "-"), "2.5", "installed")
        assert found["state"] == state
        assert found["reason"].startswith(reason)
    assert (listed["lr_sound"]["hooks"], listed["lr_sound"]["sdk"]) == (["longrein_agents"], 1)
    assert (listed["lr_new"]["sdk"], listed["lr_broken"]["sdk"]) == (99, None)


def test_people_get_the_same_in_a_table(environment: dict[str, str]) -> None:
    lines = plugins(environment).splitlines()
    for name, (state, reason) in EXPECTED.items():
        (line,) = [line for line in lines if line.startswith(f"{name} ")]
        assert f" {state} " in f"{line} "
        assert reason in line
