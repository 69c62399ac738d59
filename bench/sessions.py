"""What longrein adds to an agent's session: bubblewrap, capture, grading and the record, against the bare agent.

    python bench/sessions.py [--pairs 15] [--agent opencode --agent aider]

Real agents ask the same scripted engine, in a process of its own, and are started with the same launch plan: once through longrein, once
bare in a folder with a home of its own. Pairs are interleaved, one and four sessions at a time. Prints the median of the pairs' ratios of
wall times with the interval that its ranks give, the CPU seconds added to a session, and whether the bound holds; exits 1 if one does not.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path, PurePosixPath

from scipy import stats

from longrein import toolchain
from longrein.agent import AgentAdapter, Session
from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import from_mapping
from longrein.model import Task
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.record import RunRecorder
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.tasks import load_tasks
from longrein.sandbox.bwrap import interpreter
from longrein.testing.scripted import ScriptedServer
from longrein.testing.solver import solver

BOUND = 1.10
LONGEST_S = 300.0
"""Of a bare agent; one that cannot use the engine's replies may ask for ever."""
PROGRAM = "print(2 * int(input()))\n"
Batch = Callable[[], Awaitable[None]]


def serve() -> None:
    """Serve the scripted policy until standard input ends."""
    with ScriptedServer(solver(lambda _: PROGRAM)) as server:
        print(server.endpoint.url, flush=True)
        sys.stdin.read()


async def bare(adapter: AgentAdapter, task: Task, url: str) -> None:
    """Run the agent's launch plan without longrein around it."""
    with tempfile.TemporaryDirectory(prefix="bare-") as name:
        work, home = Path(name, "work"), Path(name, "home")
        session = Session(
            task=task.public,
            model="scripted",
            base_url=url.removesuffix("/v1"),
            api_key="none",
            workdir=PurePosixPath(work),
            home=PurePosixPath(home),
            python=PurePosixPath(interpreter()),
            toolchain=toolchain.find(adapter.name, adapter.toolchain) if adapter.toolchain else None,
            max_model_len=200_000,
        )
        plan = adapter.launch(session)
        for path, text in {**task.public.files, **plan.files}.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
        home.mkdir(exist_ok=True)
        path = ":".join((*plan.path, str(interpreter().parent), "/usr/local/bin", "/usr/bin", "/bin"))
        env = {**plan.env, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "TMPDIR": name}
        process = await asyncio.create_subprocess_exec(
            *plan.argv, cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            async with asyncio.timeout(LONGEST_S):
                output = await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        if (work / "solution.py").read_text().strip() != PROGRAM.strip():
            raise SystemExit(f"the bare {adapter.name} did not write the program: {output}")


async def through_longrein(engine: Engine, task: Task, agent: str) -> None:
    """Run the same through longrein."""
    rollout = await engine.rollout(RolloutSpec.of(task, agent, time.monotonic_ns(), run_seed=0))
    if rollout.session.workspace.get("solution.py", b"").decode().strip() != PROGRAM.strip():
        raise SystemExit(f"{agent} did not write the program through longrein: {rollout.session}")


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


async def measured(batch: Batch) -> tuple[float, float]:
    """Return wall and CPU seconds of a batch."""
    began, used = time.perf_counter(), cpu_s()
    await batch()
    return time.perf_counter() - began, cpu_s() - used


def rank_interval(values: list[float]) -> tuple[float, float]:
    """Return an interval that holds the median with at least 95 %, from the order statistics (binomial ranks)."""
    low = int(stats.binom.ppf(0.025, len(values), 0.5))
    ordered = sorted(values)
    return ordered[max(0, low - 1)], ordered[min(len(values) - 1, len(values) - low)]


async def compare(engine: Engine, adapter: AgentAdapter, task: Task, *, url: str, at_once: int, pairs: int) -> bool:
    """Measure interleaved pairs, print the figures, and return whether the bound holds."""

    async def ours() -> None:
        await asyncio.gather(*(through_longrein(engine, task, adapter.name) for _ in range(at_once)))

    async def theirs() -> None:
        await asyncio.gather(*(bare(adapter, task, url) for _ in range(at_once)))

    await theirs()
    await ours()
    ratios, added, walls = [], [], []
    for number in range(pairs):
        first, second = (ours, theirs) if number % 2 else (theirs, ours)
        found = {first: await measured(first), second: await measured(second)}
        ratios.append(found[ours][0] / found[theirs][0])
        added.append((found[ours][1] - found[theirs][1]) / at_once)
        walls.append(found[theirs][0])
    ratio, (low, high) = statistics.median(ratios), rank_interval(ratios)
    print(
        f"{adapter.name}, {at_once} at a time: {ratio:.3f} [{low:.3f}, {high:.3f}] of the bare agent's {statistics.median(walls):.2f} s,"
        f" {statistics.median(added):+.2f} CPU seconds a session (bound {BOUND:g}: {'holds' if ratio <= BOUND else 'DOES NOT HOLD'})",
        flush=True,
    )
    return ratio <= BOUND


async def main_async(agents: list[str], pairs: int, url: str) -> bool:
    """Measure all agents; True when every bound holds."""
    host = PluginHost.load()
    values = {"taskset": "practice", "agents": {name: {} for name in agents}, "sandbox": {"backend": "bwrap"}, "limits": {"sessions": 4}}
    config, held = from_mapping(values), True
    task = load_tasks(config.taskset, host)[0]
    with tempfile.TemporaryDirectory(prefix="sessions-") as folder:
        endpoint = PolicyEndpoint(url, "scripted", max_model_len=200_000)
        async with Engine(config, host, endpoint=endpoint, recorder=RunRecorder(Path(folder))) as engine:
            for name in agents:
                for at_once in (1, 4):
                    held &= await compare(engine, engine.adapters[name], task, url=url, at_once=at_once, pairs=pairs)
    return held


def main() -> None:
    """Parse the command line, start the scripted engine, measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--agent", action="append", help="default: opencode and aider")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}", flush=True)
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        url = server.stdout.readline().strip()
        held = asyncio.run(main_async(arguments.agent or ["opencode", "aider"], arguments.pairs, url))
        server.stdin.close()
    sys.exit(not held)


if __name__ == "__main__":
    main()
