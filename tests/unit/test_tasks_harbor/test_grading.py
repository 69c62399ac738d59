"""Harbor tasks through the sandbox: rewards are verdicts, solutions pass, and agents find the paths of their task."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.unit.test_tasks_harbor.conftest import make_task

from longrein import api
from longrein.config import from_mapping
from longrein.errors import RunStopped, TaskError
from longrein.model import Verdict
from longrein.plugins import PluginHost
from longrein.sandbox import BubblewrapSandbox
from longrein.tasks.harbor import HarborTasks, HarborVerifier, box
from longrein.tasks.harbor.taskset import HarborOptions

pytestmark = pytest.mark.skipif(BubblewrapSandbox.unavailable() is not None, reason=f"{BubblewrapSandbox.unavailable()}")


def grade(folder: Path, test: str, *, answer: str = "7\n", timeout_s: float = 60) -> Verdict:
    """Grade a workspace with sum.txt by these lines of a test.sh."""
    task = make_task(folder / "sum", test=f"#!/bin/bash\n{test}\n")
    (folder / "work").mkdir()
    (folder / "work" / "sum.txt").write_text(answer)
    hidden = {"tests": str(task / "tests"), "workdir": "/app", "timeout_s": timeout_s}
    verdict = asyncio.run(HarborVerifier().grade(hidden, folder / "work"))
    assert [path.name for path in (folder / "work").iterdir()] == ["sum.txt"]
    assert sorted(path.name for path in (task / "tests").iterdir()) == ["test.sh", "wanted"]
    return verdict


LOGS = "/logs/verifier"


@pytest.mark.parametrize(
    ("test", "status", "score", "said"),
    [
        (f"cmp /app/sum.txt /tests/wanted && pwd | grep -qx /app && echo 1 > {LOGS}/reward.txt", "passed", 1.0, "reward 1"),
        (f"echo 0.25 > {LOGS}/reward.txt; exit 3", "failed", 0.25, "reward 0.25"),
        (f"""echo '{{"reward": 1.0, "style": 0.5, "note": "x"}}' > {LOGS}/reward.json""", "passed", 1.0, ""),
        (f"""echo '{{"accuracy": 0}}' > {LOGS}/reward.json""", "failed", 0.0, ""),
        (f"""echo '{{"a": 1, "b": 1}}' > {LOGS}/reward.json""", "unscorable", None, "2 rewards and none called reward"),
        (f"""echo '{{"a": 1, "b": 1}}' > {LOGS}/reward.json; echo 1 > {LOGS}/reward.txt""", "passed", 1.0, ""),
        ("exit 0", "unscorable", None, "wrote no reward"),
        (f"echo 7 > {LOGS}/reward.txt", "unscorable", None, "not in [0, 1]"),
        (f"echo nan > {LOGS}/reward.txt", "unscorable", None, "not in [0, 1]"),
        (f"echo yes > {LOGS}/reward.txt", "unscorable", None, "no number"),
        (f"echo '[1]' > {LOGS}/reward.json", "unscorable", None, "no object"),
        (f"ln -s /etc/hostname {LOGS}/reward.txt", "unscorable", None, "cannot be read"),
        (f"mkfifo {LOGS}/reward.txt", "unscorable", None, "is no file"),
        (f"head -c 99999 /dev/zero > {LOGS}/reward.txt", "unscorable", None, "more than 64 KiB"),
        (f"mv {LOGS} /logs/old; ln -s /etc {LOGS}; rm -rf {LOGS}; touch /x", "unscorable", None, "wrote no reward"),
    ],
)
def test_what_the_tests_write_is_the_verdict(tmp_path: Path, test: str, status: str, score: float | None, said: str) -> None:
    verdict = grade(tmp_path, test)
    assert (verdict.status, verdict.score) == (status, score), verdict
    assert said in verdict.reason


def test_tests_have_a_python_with_pytest_a_place_for_files_and_no_network(tmp_path: Path) -> None:
    test = f"""
python -m pytest --version && touch /tmp/mine $HOME/too && ! touch /etc/mine 2> /dev/null || exit 1
python - <<'END' && echo 1 > {LOGS}/reward.txt
import socket
assert [name for _, name in socket.if_nameindex()] == ["lo"]
END
"""
    verdict = grade(tmp_path, test)
    assert verdict.status == "passed", verdict
    assert not Path("/tmp/mine").exists()


def test_endless_tests_fail_and_without_bubblewrap_nothing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = grade(tmp_path, f"echo 1 > {LOGS}/reward.txt; sleep 600", timeout_s=1)
    assert (verdict.status, verdict.score) == ("failed", 0.0)
    monkeypatch.setattr(box, "bwrap_works", lambda: False)
    (tmp_path / "again").mkdir()
    verdict = grade(tmp_path / "again", "exit 0")
    assert (verdict.status, "bubblewrap" in verdict.reason) == ("unscorable", True)


def test_a_solution_is_what_its_script_writes(tmp_path: Path) -> None:
    tasks = HarborTasks(HarborOptions(make_task(tmp_path / "sum")))
    assert tasks.solution("sum") == {"data/numbers": "3\n4\n", "notes.txt": "two numbers\n", "sum.txt": "7\n"}
    assert HarborTasks(HarborOptions(make_task(tmp_path / "none", solve=None))).solution("none") is None
    failing = HarborTasks(HarborOptions(make_task(tmp_path / "bad", solve="#!/bin/bash\necho no such thing; exit 4\n")))
    with pytest.raises(TaskError, match=r"exit code 4\): no such thing"):
        failing.solution("bad")


AGENT = """
import longrein
from longrein.agent import AgentAdapter, Capabilities, LaunchPlan

class Script(AgentAdapter):
    name = "script"
    capabilities = Capabilities(calls_model=False)

    def launch(self, session):
        return LaunchPlan(["sh", "-c", "ls /tests /solution; test $(pwd) = /work && cat /app/data/numbers && echo 7 > /app/sum.txt"])

@longrein.hookimpl
def longrein_agents():
    return [Script]
"""


def test_agents_work_at_the_paths_of_the_task_and_are_graded(tmp_path: Path) -> None:
    make_task(tmp_path / "tasks" / "sum")
    (tmp_path / "script.py").write_text(AGENT)
    host = PluginHost.load(("./script.py",), folder=tmp_path)
    agents = {"script": {}, "oracle": {}, "nop": {}}

    def verdicts(backend: str) -> dict[str, tuple[str, str]]:
        config = from_mapping(
            {
                "taskset": {"name": "harbor", "options": {"path": str(tmp_path / "tasks")}},
                "agents": agents,
                "sandbox": {"backend": backend},
                "run": {"out": str(tmp_path / backend)},
            }
        )
        rollouts = api.run(config, host=host).rollouts
        found = {one.agent: one for one in rollouts}
        if "script" in found:
            assert "wanted" not in found["script"].session.stdout, "tests are not seen"
        return {name: (one.verdict.status, one.outcome.kind) for name, one in found.items()}

    completed = {"script": ("passed", "completed"), "oracle": ("passed", "completed"), "nop": ("failed", "completed")}
    assert verdicts("bwrap") == completed
    with pytest.raises(RunStopped, match=r"working folder /app, where the sandbox 'supervisor' cannot show it"):
        verdicts("supervisor")
