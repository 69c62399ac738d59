"""Verify commands: of task folders, and of the verifier "command"; limits hold and nothing is left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from longrein.errors import ConfigError
from longrein.model import Verdict
from longrein.plugins import PluginHost
from longrein.sandbox.limits import SandboxLimits
from longrein.tasks import command as commands
from longrein.tasks.command import CommandResult, run_command


def grade(workspace: Path, hidden: dict[str, Any], **options: Any) -> Verdict:
    verdict = PluginHost.load().verifier("command", options).grade(hidden, workspace)
    assert not isinstance(verdict, Verdict)

    async def wait() -> Verdict:
        return await verdict

    return asyncio.run(wait())


def run(workspace: Path, command: str, **limits: int) -> CommandResult:
    return asyncio.run(run_command(command, workspace, hidden=None, timeout_s=60, limits=SandboxLimits(**limits)))


@pytest.mark.parametrize(
    ("command", "status", "score"),
    [
        ("cmp answer.txt ../hidden/deep/right.txt", "passed", 1.0),
        ("grep -q 43 answer.txt", "failed", 0.0),
        ("echo 0.5 > $LONGREIN_SCORE; exit 1", "failed", 0.5),
        ("exit 77", "unscorable", None),
        ("no-such-program", "unscorable", None),
        ("ln -s /etc/passwd $LONGREIN_SCORE", "unscorable", None),
        ("mkfifo $LONGREIN_SCORE", "unscorable", None),
        ("kill -9 $$", "failed", 0.0),
    ],
)
def test_exit_codes_are_verdicts(tmp_path: Path, command: str, status: str, score: float | None) -> None:
    (tmp_path / "answer.txt").write_text("42\n")
    verdict = grade(tmp_path, {"command": command, "files": {"deep/right.txt": "42\n"}})
    assert (verdict.status, verdict.score) == (status, score), verdict
    assert [path.name for path in tmp_path.iterdir()] == ["answer.txt"]


def test_hidden_data_of_another_shape_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown key in hidden data 'comand'"):
        grade(tmp_path, {"comand": "true"})


def test_time_is_limited(tmp_path: Path) -> None:
    verdict = grade(tmp_path, {"command": "sleep 600"}, timeout_s=0.5)
    assert (verdict.status, verdict.score, verdict.details["exit_code"]) == ("failed", 0.0, None)


@pytest.mark.parametrize("isolation", ["bwrap", "processes"])
def test_limits_hold_and_nothing_is_left(tmp_path: Path, isolation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "bwrap_works", lambda: isolation == "bwrap")
    monkeypatch.setattr(commands.tempfile, "tempdir", str(tmp_path))  # type: ignore[attr-defined]
    (tmp_path / "work").mkdir()
    memory = run(tmp_path / "work", "exec python3 -c 'import time; x = b\"1\" * (400 << 20); time.sleep(600)'", memory_mb=100)
    assert (memory.exit_code != 0, memory.isolation, memory.trouble) == (True, isolation, "")
    many = run(tmp_path / "work", "for i in $(seq 60); do sleep 600 & done; wait", max_processes=20)
    assert many.exit_code == 250
    assert "processes, limit 20" in many.output
    loud = run(tmp_path / "work", "yes | head -c 50000000; echo the end", output_kb=4)
    assert len(loud.output) <= 8 << 10
    assert loud.output.endswith("the end\n")
    ours = f"{10**6 + os.getpid()}"  # seconds that no other process sleeps for
    assert run(tmp_path / "work", f"mkdir -p a/b; chmod 000 a; setsid sleep {ours} & setsid nohup sleep {ours} & exit 0").exit_code == 0
    left = [p.info for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", ours]]
    assert (left, [path.name for path in tmp_path.iterdir()]) == ([], ["work"])


def test_a_command_has_no_network(tmp_path: Path) -> None:
    said = run(tmp_path, "cat /proc/net/dev | grep -c eth; ls /sys/class/net 2>/dev/null; grep -c : /proc/net/dev").output
    assert said.split()[-1] == "1", "only loopback"
