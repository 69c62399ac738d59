"""What a session of each agent costs: CPU seconds, memory, and what it takes while it waits for the model. Figures for docs/scaling.md.

    python bench/footprint.py [--sessions 9] [--agent opencode --agent aider]

Real agents in bubblewrap against a scripted policy in this process. CPU is that of all processes of the sessions; memory is what they
share counted in parts (PSS), at the most and while all wait for their first reply. Prints medians; nothing else should run.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil
from attrs import evolve

from longrein.config import from_mapping
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.record import RunRecorder
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.tasks import load_tasks
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.testing.solver import solver

PROGRAM = "print(2 * int(input()))\n"
SETTLE_S, WAIT_S, LOOK_S = 5.0, 30.0, 0.2
AT_ONCE = 2


def tree() -> list[psutil.Process]:
    """Return the processes below this one."""
    return psutil.Process().children(recursive=True)


def memory_mb() -> float:
    """Return the proportional memory of all sessions' processes."""
    total = 0.0
    for process in tree():
        try:
            total += process.memory_full_info().pss / 2**20
        except psutil.Error:
            continue
    return total


def running_s() -> float:
    """Return the CPU seconds of the sessions' processes that live now, their ended threads included."""
    total = 0.0
    for process in tree():
        try:
            used = process.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system
    return total


def ended_s() -> float:
    """Return the CPU seconds of the sessions' processes that have ended."""
    used = psutil.Process().cpu_times()
    return used.children_user + used.children_system


async def measure(agent: str, n_sessions: int) -> None:
    """Run sessions of one agent and print its line."""
    host, may_answer = PluginHost.load(), threading.Event()
    solve = solver(lambda _: PROGRAM)

    def script(request: dict[str, object]) -> Reply:
        return evolve(solve(request), hold=may_answer)

    with ScriptedServer(script) as server, tempfile.TemporaryDirectory(prefix="footprint-") as folder:
        values = {
            "taskset": "practice",
            "agents": {agent: {}},
            "limits": {"sessions": AT_ONCE, "timeout_s": 600, "idle_s": 300, "reply_s": 300},
            "policy": {"url": server.endpoint.url, "model": "scripted"},
            "sandbox": {"backend": "bwrap"},
        }
        config = from_mapping(values)
        task = load_tasks(config.taskset, host)[0]
        async with Engine(config, host, endpoint=server.endpoint, recorder=RunRecorder(Path(folder))) as engine:
            specs = [RolloutSpec.of(task, agent, number, run_seed=0) for number in range(AT_ONCE + n_sessions)]
            waiting = asyncio.gather(*map(engine.rollout, specs[:AT_ONCE]))
            await asyncio.sleep(SETTLE_S)
            while len(server.requests) < AT_ONCE:
                await asyncio.sleep(LOOK_S)
            await asyncio.sleep(SETTLE_S)
            held_mb, before = memory_mb(), running_s()
            await asyncio.sleep(WAIT_S)
            idle_ms = (running_s() - before) / WAIT_S / AT_ONCE * 1000
            may_answer.set()
            await waiting
            cpu, peaks = [], []
            for spec in specs[AT_ONCE:]:
                used, peak = ended_s(), 0.0
                one = asyncio.ensure_future(engine.rollout(spec))
                while not one.done():
                    peak = max(peak, await asyncio.to_thread(memory_mb))
                    await asyncio.wait({one}, timeout=LOOK_S)
                assert one.result().verdict.status != "unscorable", one.result().outcome
                cpu.append(ended_s() - used)
                peaks.append(peak)
    print(
        f"| {agent} | {statistics.median(cpu):.2f} | {statistics.median(peaks):.0f} | {held_mb / AT_ONCE:.0f} | {idle_ms:.1f} |", flush=True
    )


def main() -> None:
    """Parse the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=9)
    parser.add_argument("--agent", action="append", help="default: opencode and aider")
    arguments = parser.parse_args()
    begun = time.monotonic()
    print("| agent | CPU s a session | MB at most | MB while it waits | CPU ms for each second that it waits |")
    print("| --- | --- | --- | --- | --- |", flush=True)
    for agent in arguments.agent or ["opencode", "aider"]:
        asyncio.run(measure(agent, arguments.sessions))
    print(f"{arguments.sessions} sessions each, one at a time; {AT_ONCE} waited for {WAIT_S:g} s; took {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
