"""What forks of a warm interpreter cost by themselves, grading nothing, against a plain loop of `subprocess.run`.

    python bench/forks.py [--runs 9] [--workers 2]

Bare: a fork for each case. Boxed: for each program an init in namespaces of its own, with its own /proc and folder, that forks each case
and kills what is left. Neither has limits, a workspace, or a process apart for the expected answers: what a grader has to do comes on top.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import longrein_deepcoder
from longrein_deepcoder.forked import prefixes

sys.path.insert(0, str(Path(longrein_deepcoder.__file__).parent / "forkserver"))
import lr_box
import lr_libc as libc

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
CODE = compile(ADD, "solution.py", "exec")
DISK_MB = 64

Case = tuple[bytes, bytes]


def case(given: bytes, expected: bytes) -> None:
    """Run one case in a fork."""
    fds = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    os.pwrite(fds[0], given, 0)
    if (pid := libc.fork()) == 0:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
        os.closerange(3, 200)
        exec(CODE, {"__name__": "__main__"})
        sys.stdout.flush()
        os._exit(0)
    _, status, _ = os.wait4(pid, 0)
    assert status == 0, status
    assert os.pread(fds[1], len(expected) + 1, 0) == expected
    for fd in fds:
        os.close(fd)


def bare(cases: list[Case]) -> None:
    """Run a program's cases, each in a fork."""
    for given, expected in cases:
        case(given, expected)


def boxed(cases: list[Case]) -> None:
    """Run a program's cases in forks of an init in its own namespaces."""
    user = os.geteuid(), os.getegid()
    if (pid := libc.fork_into(lr_box.PROGRAM)) == 0:
        lr_box.map_user(*user)
        lr_box.mount_private(DISK_MB)
        for given, expected in cases:
            case(given, expected)
            libc.kill_all()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0


def plain(cases: list[Case]) -> None:
    """Run a program's cases as a plain loop does."""
    for given, expected in cases:
        done = subprocess.run([sys.executable, "solution.py"], input=given, capture_output=True, check=True)
        assert done.stdout == expected


def rate(program: Callable[[list[Case]], None], cases: list[Case], programs: int, workers: int) -> float:
    """Return the cases per second of `workers` processes that run `programs` programs each, after one to warm up."""
    ready, go = os.pipe(), os.pipe()
    pids = []
    for _ in range(workers):
        if (pid := os.fork()) == 0:
            if program is boxed:
                lr_box.enter_system(tempfile.mkdtemp(dir=Path.cwd()), prefixes(Path(sys.executable)))
            program(cases)
            os.write(ready[1], b"x")
            os.read(go[0], 1)
            for _ in range(programs):
                program(cases)
            os._exit(0)
        pids.append(pid)
    for _ in pids:
        os.read(ready[0], 1)
    started = time.perf_counter()
    os.write(go[1], b"x" * workers)
    assert all(os.waitpid(pid, 0)[1] == 0 for pid in pids)
    spent = time.perf_counter() - started
    for fd in (*ready, *go):
        os.close(fd)
    return workers * programs * len(cases) / spent


def main() -> None:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=9, help="interleaved runs of each (default 9)")
    parser.add_argument("--workers", type=int, default=2, help="processes at once (default 2)")
    options = parser.parse_args()
    gc.collect()
    gc.freeze()
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        Path("solution.py").write_text(ADD)
        for n_cases in (1, 12, 40):
            cases = [(f"{n} {n}\n".encode(), f"{2 * n}\n".encode()) for n in range(n_cases)]
            sizes = {bare: 1 + 240 // n_cases, boxed: 1 + 240 // n_cases, plain: 1 + 12 // n_cases}
            rounds = [[rate(program, cases, size, options.workers) for program, size in sizes.items()] for _ in range(options.runs)]
            fork, box, loop = (statistics.median(column) for column in zip(*rounds, strict=True))
            print(
                f"{n_cases:2} trivial case(s)  {options.workers} worker(s)  plain {loop:6.1f} cases/s  bare forks {fork / loop:5.1f} times"
                f"  boxed {box / loop:5.1f} times",
                flush=True,
            )
        os.chdir("/")


if __name__ == "__main__":
    main()
