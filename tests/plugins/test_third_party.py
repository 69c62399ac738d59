"""A package that is none of ours, installed with pip into a venv of its own, changes one agent's labels and the reward."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

GOOD = """
from longrein import hookimpl
from longrein.model import Reward, TurnLabel

@hookimpl
def longrein_classify_turn(turn, agent):
    if agent.name == "nop":
        return TurnLabel("context", "nothing of this agent is trained")

@hookimpl
def longrein_compute_reward(rollout):
    if rollout.agent == "nop":
        return Reward(0.25, {"steady": 0.25})
"""
RAISES = """
from longrein import hookimpl

@hookimpl
def longrein_classify_turn(turn): raise RuntimeError("lost")

@hookimpl
def longrein_compute_reward(rollout): raise RuntimeError("lost")
"""
SESSION = """
import asyncio, json, sys
from longrein.config import TurnsConfig
from longrein.model import ModelCall, Outcome, PublicTask, Rollout, SessionResult, Usage, Verdict
from longrein.plugins import PluginHost
from longrein.turns import label_calls

host = PluginHost.load(json.loads(sys.argv[1]))
reply = {"role": "assistant", "content": "done"}
ask = ({"role": "system", "content": "You code."}, {"role": "user", "content": "Do it."})
calls = [
    ModelCall("c0", 0, None, [1, 2], 2, [3, 4], [-0.1, -0.2], Usage(2, 2), messages=ask, reply=reply, finish_reason="stop"),
    ModelCall("c1", 1, None, [1, 2], 2, [3], [-0.1], Usage(2, 30), messages=ask, reply=reply, problem="30 tokens, 1 id"),
]
shown = {}
for name in ("nop", "oracle"):
    agent, findings = host.agent(name), []
    decide = lambda turn, trajectory, proposal: host.classify(agent, turn, trajectory, proposal, findings)
    trajectory = label_calls(calls, {}, task=PublicTask("Do it."), decide=decide, options=TurnsConfig())
    ended = SessionResult("s", name, Outcome("completed"), trajectory)
    rollout = Rollout("r", "g", name, "practice", "t", "d", 0, 0, ended, Verdict("passed", 1.0))
    reward = asyncio.run(host.compute_reward(rollout, host.reward("binary"), findings))
    shown[name] = {
        "turns": [[turn.label.label, turn.decided_by] for turn in trajectory],
        "reward": [reward.value, reward.decided_by],
        "findings": [[finding.source, finding.message] for finding in findings],
    }
print(json.dumps(shown))
"""
UNCHANGED = {"turns": [["train", "structure"], ["invalid", "capture"]], "reward": [1.0, "reward:binary"], "findings": []}


def wheel(folder: Path, module: str, text: str) -> Path:
    """Write a wheel with one module and its entry point; made by hand, a test has no use for a build backend."""
    path = folder / f"{module}-1.0-py3-none-any.whl"
    info = f"{module}-1.0.dist-info"
    files = {
        f"{module}.py": text,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\nRequires-Dist: longrein\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[longrein]\n{module} = {module}\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a fresh venv with two foreign packages, which sees what is installed here."""
    folder = tmp_path_factory.mktemp("foreign")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    here = sysconfig.get_path("purelib")
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "base.pth").write_text(f"import site; site.addsitedir({here!r})\n", encoding="utf-8")
    wheels = [wheel(folder, "lr_good", GOOD), wheel(folder, "lr_raises", RAISES)]
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"]
    subprocess.run([*pip, *wheels], check=True, timeout=60)
    return python


def session(python: Path, *use: str) -> dict[str, Any]:
    """Run the same made-up session of two agents with the packages of `use` taking part."""
    done = subprocess.run([python, "-c", SESSION, json.dumps(use)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    shown: dict[str, Any] = json.loads(done.stdout)
    return shown


def test_it_changes_the_label_of_one_agent_and_its_reward(python: Path) -> None:
    shown = session(python, "lr_good")
    assert shown["nop"] == {
        "turns": [["context", "plugin:lr_good"], ["invalid", "capture"]],
        "reward": [0.25, "plugin:lr_good"],
        "findings": [],
    }
    assert shown["oracle"] == UNCHANGED


def test_one_that_raises_changes_nothing_and_is_named(python: Path) -> None:
    shown = session(python, "lr_raises")
    for agent in ("nop", "oracle"):
        findings = shown[agent].pop("findings")
        assert shown[agent] == {key: value for key, value in UNCHANGED.items() if key != "findings"}
        assert [source for source, _ in findings] == ["plugin:lr_raises", "plugin:lr_raises"]
        assert all("raised RuntimeError: lost (lr_raises.py:" in message for _, message in findings)


def test_one_that_raises_leaves_the_next_its_turn(python: Path) -> None:
    assert session(python, "lr_raises", "lr_good")["nop"]["turns"][0] == ["context", "plugin:lr_good"]


def test_installed_but_not_named_it_changes_nothing(python: Path) -> None:
    assert session(python) == {"nop": UNCHANGED, "oracle": UNCHANGED}


def test_the_command_line_lists_it(python: Path) -> None:
    command = [python, "-c", "from longrein.cli import main; main()", "plugins", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    listed = {plugin["name"]: plugin for plugin in json.loads(done.stdout)}
    assert (listed["lr_good"]["distribution"], listed["lr_good"]["version"], listed["lr_good"]["state"]) == ("lr_good", "1.0", "ok")
    assert listed["lr_good"]["hooks"] == ["longrein_classify_turn", "longrein_compute_reward"]
