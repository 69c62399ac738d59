"""Hostile agents as real sessions under bubblewrap: every attack fails as the table says, and the honest ones beside them pass."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.e2e.attacks import CANARY, Attack
from tests.e2e.redteam import ATTACKS, NEIGHBOUR, SOLUTION

from longrein import api
from longrein.config import from_mapping
from longrein.model import Rollout
from longrein.plugins import PluginHost
from longrein.sandbox import BubblewrapSandbox
from longrein.testing.scripted import Reply, ScriptedServer

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(1200)]
needs_bwrap = pytest.mark.skipif(BubblewrapSandbox.unavailable() is not None, reason=f"{BubblewrapSandbox.unavailable()}")
PLUGIN = Path(__file__).with_name("redteam.py")
SMALL = {"memory_mb": 600, "max_processes": 40, "disk_mb": 64, "max_files": 4000, "file_size_mb": 32, "workspace_mb": 8, "output_kb": 64}
Run = Callable[..., dict[str, Rollout]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs honest agents and the attacks, in one engine, and gives agent name to rollout."""
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "hidden.json").write_text(CANARY)
    (tasks / "solution.py").write_text(SOLUTION)
    monkeypatch.setenv("LONGREIN_TEST_HIDDEN", CANARY)  # the engine's environment is not the agent's

    def start(attacks: Sequence[Attack], backend: str) -> dict[str, Rollout]:
        thief_is_done = threading.Event()
        if not any(attack.name == "stolen-key" for attack in attacks):
            thief_is_done.set()

        def script(request: dict[str, Any]) -> Reply:
            asked = request["messages"][-1]["content"]
            if asked == "thief is done":
                thief_is_done.set()
            return Reply(SOLUTION if "solve" in asked else "ok", hold=thief_is_done if "late" in asked else None)

        with ScriptedServer(script) as server:
            host = {
                "REPO": str(Path(__file__).parents[2]),
                "TASKS": str(tasks),
                "RUN": str(tmp_path / "run"),
                "CACHE": str(Path.home() / ".cache"),
                "POLICY": server.endpoint.url.rpartition(":")[2].removesuffix("/v1"),
                "TOKEN": f"7{os.getpid()}3",
                "CANARY": CANARY,
            }
            names = [NEIGHBOUR, *(attack.name for attack in attacks), "honest"]
            values = {
                "taskset": "secret",
                "agents": {name: {"host": host} for name in names},
                "plugins": {"use": [str(PLUGIN)]},
                "run": {"out": str(tmp_path / "run")},
                "policy": {"url": server.endpoint.url, "model": "scripted"},
                "limits": {"sessions": 3, "timeout_s": 400, "idle_s": 300, "reply_s": 500, "unscorable_share": 1.0},
                "sandbox": {"backend": backend, "limits": SMALL},
            }
            loaded = PluginHost.load(("./redteam.py",), folder=PLUGIN.parent)
            result = api.run(from_mapping(values), host=loaded)
        assert not [p for p in psutil.process_iter(["cmdline"]) if host["TOKEN"] in " ".join(p.info["cmdline"] or ())]
        return {rollout.agent: rollout for rollout in result.rollouts}

    return start


def ending(rollout: Rollout, said: str) -> tuple[str, float | None, list[str], bool]:
    """Return outcome, reward, what escaped, and whether the output shows that the attack was made."""
    session = rollout.session
    output = session.stdout + session.stderr
    escaped = [line for line in output.splitlines() if line.startswith("ESCAPED")]
    return session.outcome.kind, rollout.reward.value, escaped[:3], re.search(said, output) is not None


def check(run: Run, attacks: Sequence[Attack]) -> None:
    """Run attacks and compare how all ended with the table."""
    rollouts = run(attacks, "bwrap")
    found = {attack.name: ending(rollouts[attack.name], attack.said) for attack in attacks}
    expected = {attack.name: (attack.outcome, attack.reward, [], True) for attack in attacks}
    wrong = {name: rollouts[name].session for name in expected if found[name] != expected[name]}
    shown = "\n".join(
        f"{n}: {found[n]} instead of {expected[n]}; {s.outcome}\n{s.stdout[-600:]}\n{s.stderr[-600:]}" for n, s in wrong.items()
    )
    assert not wrong, shown
    for name in ("honest", NEIGHBOUR):
        assert ending(rollouts[name], "refused 0")[:2] == ("completed", 1.0), rollouts[name].session
    assert all(len(r.session.stdout) <= SMALL["output_kb"] << 10 for r in rollouts.values())
    for rollout in rollouts.values():
        assert rollout.session.sandbox["policy"] == rollouts["honest"].session.sandbox["policy"]
        assert not any("theft" in str(turn.call.messages) for turn in rollout.trajectory), "a stolen key became a call"


@needs_bwrap
def test_the_quick_half_of_the_attacks_fails(run: Run) -> None:
    check(run, [attack for attack in ATTACKS if attack.quick])


@needs_bwrap
@pytest.mark.more
def test_all_attacks_fail(run: Run) -> None:
    assert len(ATTACKS) >= 25
    check(run, ATTACKS)


LOOK = """
open("solution.py", "w").write("print(7 * int(input()))")
ask("solve")
for top in ("/work", os.environ["HOME"], "/tmp", "/dev/shm", "/proc/self", "/etc"):
    for base, folders, names in os.walk(top):
        folders[:] = [f for f in folders if f not in ("task", "map_files", "fd", "ns")]
        for path in (os.path.join(base, name) for name in names):
            try:
                if not os.path.isfile(path) or path in ("/proc/self/kmsg", "/proc/self/pagemap", "/proc/self/clear_refs"): continue
                for mark in (str(7 * 38514773), str(2 * 38514773)):
                    if mark in open(path, errors="replace").read(1 << 20): print("ESCAPED", path)
            except OSError: pass
"""


@needs_bwrap
def test_what_a_program_printed_when_it_was_graded_stays_in_the_record(tmp_path: Path) -> None:
    """The first session's verdict is there when the last looks for it."""
    with ScriptedServer(lambda _: Reply("go on")) as server:
        values = {
            "taskset": "secret",
            "agents": {"program": {"code": f"import os\n{LOOK}"}},
            "plugins": {"use": [str(PLUGIN), str(PLUGIN.with_name("toy.py"))]},
            "run": {"out": str(tmp_path / "run")},
            "policy": {"url": server.endpoint.url, "model": "scripted"},
            "limits": {"sessions": 1},
        }
        host = PluginHost.load((str(PLUGIN), str(PLUGIN.with_name("toy.py"))))
        rollouts = api.run(from_mapping(values), host=host, samples=3).rollouts
        asked = str(server.requests)
    assert len(rollouts) == 3
    for rollout in rollouts:
        case = rollout.verdict.cases[1]
        assert (case.status, case.got, case.expected) == ("wrong_answer", "269603411\n", ""), "people see what it printed"
        assert "ESCAPED" not in rollout.session.stdout, rollout.session.stdout
    assert not any(mark in asked for mark in ("269603411", "77029546"))


def test_where_there_is_no_boundary_the_same_attacks_are_seen_to_succeed(run: Run) -> None:
    """The attacks are no straw men: under the supervisor they find what there is to find."""
    easy = [attack for attack in ATTACKS if attack.name in ("host-paths", "policy-server", "linked-solution")]
    rollouts = run(easy, "supervisor")
    assert {attack.name: bool(ending(rollouts[attack.name], "")[2]) for attack in easy} == {attack.name: True for attack in easy}
    assert rollouts["linked-solution"].reward.value == 0.0, "links are not followed, whatever the sandbox"
