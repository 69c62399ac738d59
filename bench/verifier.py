"""How fast the deepcoder verifier is, against a plain loop of `subprocess.run([python, file])` in the same run.

    python bench/verifier.py [--runs 9]

Prints, for one and two workers, the medians of interleaved runs, the ratio, and whether each bound holds; exits 1 if one does not.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
from attrs import frozen

from longrein_deepcoder.compare import same
from longrein_deepcoder.verifier import DeepCoderVerifier

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
SORT = "import sys\nprint(len(sorted(sys.stdin.read().split())))\n"
SLOW = "n = int(input())\ntotal = 0\nfor i in range(n): total += i * i\nprint(total)\n"
NUMPY = "import numpy as np\nprint(int(np.arange(int(input())).sum()))\n"
PEAK_MB = 400
"""Bound on the grader's process and the fork server together."""


@frozen
class Workload:
    """A row graded `programs` times."""

    name: str
    source: str
    cases: Sequence[tuple[str, str]]
    programs: int
    bound: float
    """How many times faster than the plain loop, at least."""


def workloads() -> list[Workload]:
    """Return what is measured."""
    sums = [(f"{n} {n}\n", f"{2 * n}\n") for n in range(40)]
    words = " ".join(str(n) for n in range(700_000)) + "\n"
    squares = sum(i * i for i in range(2_000_000))
    return [
        Workload("12 trivial cases", ADD, sums[:12], 6, 12.0),
        Workload("40 trivial cases", ADD, sums, 2, 12.0),
        Workload("1 trivial case", ADD, sums[:1], 30, 5.0),
        Workload("numpy", NUMPY, [("1000\n", "499500\n")] * 3, 2, 1.0),
        Workload("5 MB of input", SORT, [(words, "700000\n")] * 2, 1, 1.0),
        Workload("slow program", SLOW, [("2000000\n", f"{squares}\n")] * 2, 1, 0.9),
        Workload("compile error", "x = (\n", sums[:12], 2, 1.0),
    ]


def plain(folder: Path, load: Workload) -> None:
    """Grade as a plain loop does."""
    for given, expected in load.cases:
        done = subprocess.run([sys.executable, "solution.py"], input=given.encode(), capture_output=True, cwd=folder, check=False)
        _ = done.returncode == 0 and same("lines", done.stdout, expected.encode())


def timed(work: Callable[[], None], programs: int, workers: int) -> float:
    """Return rows per second of `workers` threads that each do `programs` rows."""
    started = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        for done in [pool.submit(work) for _ in range(programs * workers)]:
            done.result()
    return programs * workers / (time.perf_counter() - started)


def measure(verifier: DeepCoderVerifier, load: Workload, workers: int, runs: int, folder: Path) -> bool:
    """Measure one workload, print its line, and return whether its bound holds.

    Ours does more rows, as many times as the bound says, so that both are timed for about as long.
    """
    (folder / "solution.py").write_text(load.source)
    hidden = {"kind": "stdin", "fn_name": None, "compare": "lines", "cases": [{"input": i, "output": o} for i, o in load.cases]}

    def ours() -> None:
        verdict = verifier.grade(hidden, folder)
        assert verdict.status == ("failed" if load.name == "compile error" else "passed"), verdict

    ours()
    more = max(1, int(load.bound)) * load.programs
    pairs = [(timed(ours, more, workers), timed(lambda: plain(folder, load), load.programs, workers)) for _ in range(runs)]
    fast, slow = (statistics.median(column) * len(load.cases) for column in zip(*pairs, strict=True))
    holds = bool(fast / slow >= load.bound)
    print(
        f"{load.name:18} {workers} worker(s)  {fast:9.1f} cases/s  plain {slow:7.1f}  ratio {fast / slow:6.1f}"
        f"  bound {load.bound:4.1f}  {'holds' if holds else 'DOES NOT HOLD'}",
        flush=True,
    )
    return holds


def peak_mb(process: psutil.Process) -> float:
    """Return the peak memory of a process."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="interleaved runs of each (default 9)")
    parser.add_argument("--only", default="", help="measure only workloads whose name holds this")
    options = parser.parse_args()
    verifier = DeepCoderVerifier()
    results = []
    with tempfile.TemporaryDirectory() as place:
        for load in workloads():
            if options.only in load.name:
                results += [measure(verifier, load, workers, options.runs, Path(place)) for workers in (1, 2)]
    server = psutil.Process(verifier.server_pid)
    peak = sum(map(peak_mb, [psutil.Process(), server, *server.children()]))
    results.append(peak <= PEAK_MB)
    what = "peak memory of grader, fork server and workers, shared pages counted for each"
    print(f"{what}: {peak:.0f} MB  bound {PEAK_MB} MB  {'holds' if results[-1] else 'DOES NOT HOLD'}")
    verifier.close()
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
