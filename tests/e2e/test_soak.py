"""Many sessions at once: every outcome right, traces never mixed, descriptors and memory back to where they were."""

from __future__ import annotations

import asyncio
import gc
import re
import tempfile
from pathlib import Path
from typing import Any

import psutil
import pytest
from attrs import evolve
from tests.e2e.conftest import MakeConfig

from longrein.model import Rollout
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.record import RunRecorder
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.tasks import load_tasks
from longrein.testing.scripted import Reply, ScriptedServer

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(900)]
# What a session does follows from its own random mark, which stands in every request of it.
CODE = """
mark = os.urandom(8).hex()
print("mark", mark, flush=True)
for i in range(3):
    if ask(f"{mark} {i}") != f"{mark} {i}": print("MIXED")
kind = int(mark[0], 16) % 4
open("solution.py", "w").write("print(2 * int(input()))" if kind < 2 else "print(0)")
if kind == 1: sys.exit(3)
while kind == 3: ask(f"{mark} more")
"""
EXPECTED = {0: ("completed", 1.0), 1: ("agent_error", 1.0), 2: ("completed", 0.0), 3: ("budget_exceeded", 0.0)}
GROWTH_MB = 96
"""The allocator keeps some of what it had; a session that leaked its folders or buffers would show far above this."""


def echo(request: dict[str, Any]) -> Reply:
    return Reply(request["messages"][-1]["content"])


def check(rollout: Rollout) -> None:
    """The session ended as its mark says, and its trace holds its own requests and no other."""
    found = re.search(r"mark ([0-9a-f]{16})", rollout.session.stdout)
    assert found, rollout.session
    mark = found[1]
    assert "MIXED" not in rollout.session.stdout
    assert (rollout.outcome.kind, rollout.reward.value) == EXPECTED[int(mark[0], 16) % 4], rollout.outcome
    asked = [rollout.trajectory.messages(turn.call.id)[-1]["content"] for turn in rollout.trajectory]
    assert asked[:3] == [f"{mark} {i}" for i in range(3)]
    assert set(asked[3:]) <= {f"{mark} more"}
    assert [turn.call.reply["content"] for turn in rollout.trajectory] == asked


async def soak(make: MakeConfig, host: PluginHost, n_sessions: int) -> None:
    """Run a few sessions, then all at once, and compare what the process holds after each."""
    me = psutil.Process()

    def held() -> tuple[int, float]:
        gc.collect()
        # Both sides of the connections to the policy server are in this process, which may keep them.
        return me.num_fds() - len(me.net_connections("tcp")), me.memory_info().rss / 1e6

    with ScriptedServer(echo) as server:
        config = make({"program": {"code": CODE}}, None, f"limits.sessions={n_sessions}", "limits.max_calls=6", "limits.timeout_s=600")
        tasks = load_tasks(config.taskset, host)
        specs = [RolloutSpec.of(tasks[i % len(tasks)], "program", i, run_seed=0) for i in range(n_sessions + 4)]
        async with Engine(config, host, endpoint=evolve(server.endpoint, level="tokens")) as engine:
            for rollout in await asyncio.gather(*map(engine.rollout, specs[:4])):
                check(rollout)
            descriptors, memory_mb = held()
            rollouts = await asyncio.gather(*map(engine.rollout, specs[4:]))
            for rollout in rollouts:
                check(rollout)
            assert len({rollout.session.stdout for rollout in rollouts}) == n_sessions
            assert len({rollout.session.sandbox["start_state"] for rollout in rollouts}) == 1, "the tasks have the same files"
            del rollouts, rollout
            server.requests.clear()
            descriptors_now, memory_now_mb = held()
            assert descriptors_now <= descriptors
            assert memory_now_mb < memory_mb + GROWTH_MB


async def test_sixteen_sessions_at_once(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    await soak(toy_config, toy_host, 16)


@pytest.mark.more
async def test_sixty_four_sessions_at_once(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    await soak(toy_config, toy_host, 64)


@pytest.mark.more
@pytest.mark.timeout(1500)
async def test_two_thousand_sessions_leave_nothing_behind(toy_config: MakeConfig, toy_host: PluginHost, tmp_path: Path) -> None:
    """Memory, descriptors, processes and temporary files stand after 2,000 sessions where they stood after 200."""
    me, place = psutil.Process(), Path(tempfile.gettempdir())

    def held() -> tuple[float, int, int, int]:
        gc.collect()
        files = sum(1 for path in place.rglob("*") if tmp_path not in path.parents)
        return me.memory_info().rss / 1e6, me.num_fds() - len(me.net_connections("tcp")), len(me.children(recursive=True)), files

    with ScriptedServer(echo) as server:
        config = toy_config({"program": {"code": CODE}}, None, "limits.sessions=8", "limits.max_calls=6", "limits.timeout_s=600")
        tasks = load_tasks(config.taskset, toy_host)
        endpoint, recorder = evolve(server.endpoint, level="tokens"), RunRecorder(tmp_path / "run")
        async with Engine(config, toy_host, endpoint=endpoint, recorder=recorder) as engine:
            numbers = iter(range(2000))

            async def worker(last: int) -> None:
                for number in numbers:
                    check(await engine.rollout(RolloutSpec.of(tasks[number % len(tasks)], "program", number, run_seed=0)))
                    if number >= last:
                        return

            await asyncio.gather(*(worker(192) for _ in range(8)))
            server.requests.clear()
            memory_mb, descriptors, processes, files = held()
            await asyncio.gather(*(worker(2000) for _ in range(8)))
            server.requests.clear()
            memory_now_mb, descriptors_now, processes_now, files_now = held()
    assert descriptors_now <= descriptors
    assert processes_now <= processes
    assert files_now <= files
    assert memory_now_mb < memory_mb + GROWTH_MB
    assert len((tmp_path / "run" / "rollouts.jsonl").read_text().splitlines()) == 2000
