"""What does a session cost when many are in flight, here and on Ray? Prints figures, and whether the bound holds.

    python bench/scale.py [--at-once 1 8 64 256] [--sessions 256] [--rounds 9] [--only local]

Scripted sessions (a Python program in bubblewrap that asks three times and writes a file) with capture, grading and record, one engine for
each number in flight. CPU seconds and memory are the whole machine's, from /proc/stat and /proc/meminfo, so nothing else should run.
The figures are medians of rounds, each of which measures every number in flight with every executor. The bound: CPU seconds of a session
grow by less than 20 percent from 8 to 256 in flight.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import astuple, frozen

from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import from_mapping
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.record import RunRecorder
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.tasks import load_tasks
from longrein.testing.scripted import Reply, ScriptedServer

TOY = Path(__file__).resolve().parents[1] / "tests" / "e2e" / "toy.py"
CODE = "for word in ('one', 'two', 'three'): said = ask(word)\nopen('solution.py', 'w').write(said)"
PROGRAM = "print(2 * int(input()))\n"
GROWTH = 0.20
TICKS = os.sysconf("SC_CLK_TCK")


@frozen
class Cost:
    """Of one session, and the rate."""

    per_minute: float
    cpu_s: float
    memory_mb: float
    """At the peak, over those in flight."""
    n_bytes: float
    """In the run folder."""


def busy_s() -> float:
    """Return the CPU seconds that the machine has worked."""
    user, nice, system, _, _, irq, softirq = map(int, Path("/proc/stat").read_text().split()[1:8])
    return (user + nice + system + irq + softirq) / TICKS


def free_mb() -> float:
    """Return the memory that is to be had."""
    return int(next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")).split()[1]) / 1024


@contextmanager
def least_free() -> Iterator[list[float]]:
    """Watch how little memory is free at the least."""
    least, over = [free_mb()], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            least[0] = min(least[0], free_mb())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield least
    finally:
        over.set()
        thread.join()


async def measure(executor: str, at_once: int, n_sessions: int, url: str) -> Cost:
    """Run sessions and return what one costs."""
    host = PluginHost.load((str(TOY),))
    values = {
        "taskset": "doubling",
        "agents": {"program": {"code": CODE}},
        "plugins": {"use": [str(TOY)]},
        "policy": {"url": url, "model": "scripted"},
        "limits": {"sessions": at_once, "timeout_s": 600, "idle_s": 300},
        "executor": {"name": executor, "workers": min(3, at_once), "session_cpus": 0.001, "session_memory_mb": 1, "grader_cpus": 0.1},
    }
    config = from_mapping(values)
    task = load_tasks(config.taskset, host)[0]
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        endpoint = PolicyEndpoint(url, "scripted", max_model_len=100_000)
        async with Engine(config, host, endpoint=endpoint, recorder=RunRecorder(Path(name))) as engine:
            todo = iter(range(-min(at_once, 8), n_sessions))  # the first ones warm up

            async def worker() -> None:
                for number in todo:
                    done = await engine.rollout(RolloutSpec.of(task, "program", number, run_seed=0))
                    assert done.outcome.kind == "completed", done.outcome

            for _ in range(min(at_once, 8)):
                await engine.rollout(RolloutSpec.of(task, "program", next(todo), run_seed=0))
            cpu, began, before = busy_s(), time.monotonic(), free_mb()
            with least_free() as least:
                await asyncio.gather(*(worker() for _ in range(at_once + 2)))
            wall, cpu = time.monotonic() - began, busy_s() - cpu
        n_bytes = sum(path.stat().st_size for path in Path(name).rglob("*") if path.is_file())
    return Cost(60 * n_sessions / wall, cpu / n_sessions, (before - least[0]) / at_once, n_bytes / n_sessions)


def main() -> int:
    """Measure and print; the exit status says whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--at-once", type=int, nargs="*", default=[1, 8, 64, 256])
    parser.add_argument("--sessions", type=int, default=256, help="at most, 16 for each in flight")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", choices=("local", "ray"))
    options = parser.parse_args()
    executors = (options.only,) if options.only else ("local", "ray")
    cells = [(executor, at_once) for at_once in options.at_once for executor in executors]
    found: dict[tuple[str, int], list[Cost]] = {cell: [] for cell in cells}
    with ScriptedServer(lambda _: Reply(PROGRAM)) as server:
        for number in range(options.rounds):
            for executor, at_once in cells:
                n_sessions = max(32, min(options.sessions, 16 * at_once))
                found[executor, at_once].append(asyncio.run(measure(executor, at_once, n_sessions, server.endpoint.url)))
                server.requests.clear()
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    costs = {cell: Cost(*map(statistics.median, zip(*map(astuple, each), strict=True))) for cell, each in found.items()}
    print("| executor | in flight | sessions a minute | CPU s each | MB each | KB of record each |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (executor, at_once), cost in costs.items():
        figures = f"{cost.per_minute:.0f} | {cost.cpu_s:.3f} | {cost.memory_mb:.1f} | {cost.n_bytes / 1e3:.1f}"
        print(f"| {executor} | {at_once} | {figures} |")
    holds = True
    for executor in executors:
        if (executor, 8) in costs and (executor, 256) in costs:
            growth = costs[executor, 256].cpu_s / costs[executor, 8].cpu_s - 1
            holds &= growth < GROWTH
            print(f"{executor}: CPU seconds of a session grow by {growth:+.0%} from 8 to 256 in flight (bound {GROWTH:.0%})")
    for at_once in options.at_once:
        if len(executors) == 2:
            over = costs["ray", at_once].cpu_s / costs["local", at_once].cpu_s - 1
            print(f"Ray over local with {at_once} in flight: {over:+.0%} CPU seconds a session")
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
