"""`longrein check` and `longrein new` as a person uses them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(300)
IMPURE = """import itertools
from longrein import hookimpl
from longrein.agent import AgentAdapter, Capabilities, LaunchPlan

class Impure(AgentAdapter):
    name = "impure"
    capabilities = Capabilities(dialect="none", tools=False, calls_model=False)
    count = itertools.count()

    def launch(self, session):
        return LaunchPlan(["true", str(next(self.count))])

@hookimpl
def longrein_agents():
    return [Impure]
"""


def longrein(folder: Path, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command line where the impure adapter is installed."""
    info = folder / "lr_impure-1.0.dist-info"
    info.mkdir(exist_ok=True)
    (folder / "lr_impure.py").write_text(IMPURE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: lr-impure\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[longrein]\nimpure = lr_impure\n")
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "longrein", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, timeout=280, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_a_failed_check_is_a_row_and_exit_1(tmp_path: Path) -> None:
    done = longrein(tmp_path, "check", "adapter", "impure", code=1)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["check", "result", "what", "holds", "reason"]
    (failed,) = [line for line in lines if " failed " in line]
    assert failed.startswith("launch is pure ")
    assert "two launches of one session differ" in failed
    assert any(line.startswith("starts and finishes ") and " held " in line for line in lines)
    assert any("this agent calls no model" in line for line in lines)
    assert done.stderr.splitlines()[-1] == "adapter impure: 1 of 26 checks failed: launch_is_pure"


def test_a_sound_one_is_told_as_json_and_exit_0(tmp_path: Path) -> None:
    results = json.loads(longrein(tmp_path, "check", "adapter", "nop", "--json").stdout)
    assert {result["state"] for result in results} == {"held", "not applicable"}
    assert set(results[0]) == {"check", "says", "state", "reason"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("check", "adapter", "impur"), "unknown agent 'impur'; known: "),
        (("check", "sandbox", "bwarp"), "did you mean 'bwrap'?"),
        (("check", "adapter", "nop", "--set", "colour=1"), "unknown key in [agents.nop] 'colour'"),
        (("check", "sandbox", "docker", "--set", "imgae=x"), "unknown key in [sandbox.options] 'imgae'"),
        (("new", "adapter", "My_Agent"), "'My_Agent' cannot name adapter and distribution"),
        (("new", "adapter", "mine", "--out", "."), "exists; name another folder with --out"),
    ],
)
def test_bad_input_is_refused_with_what_is_known(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    done = longrein(tmp_path, *arguments, code=2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr
