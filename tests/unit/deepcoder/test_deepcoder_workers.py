"""Workers serve one program after the other: nothing of one reaches the next, and what the system lacks costs speed only."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from longrein.model import Verdict
from longrein_deepcoder import forked
from longrein_deepcoder.forkserver.lr_pack import AHEAD
from longrein_deepcoder.verifier import DeepCoderVerifier, DeepCoderVerifierOptions

Grade = Callable[..., Verdict]
MARKER = "canary-5d1f-of-a-former-program"
SEARCH = f"""
import ctypes
marker, found = {MARKER.split("-")}, 0
marker = "-".join(marker).encode()  # put together here, so that the program's own text does not hold it
for line in open("/proc/self/maps"):
    span, mode, *rest = line.split()
    if "r" in mode and not rest[-1].startswith("[v"):
        start, end = (int(part, 16) for part in span.split("-"))
        found += ctypes.string_at(start, end - start).count(marker)
print(found - 1)  # the marker itself
"""


@pytest.fixture(params=["auto", "processes"])
def verifier(request: pytest.FixtureRequest) -> Iterator[DeepCoderVerifier]:
    made = DeepCoderVerifier(DeepCoderVerifierOptions(cpu_s=5.0, wall_s=10.0, isolation=request.param))
    yield made
    made.close()


@pytest.fixture
def grade(verifier: DeepCoderVerifier, tmp_path: Path) -> Grade:
    """Grade a program on (input, output) pairs, in a new folder; `fn` makes it a call row."""

    def run(source: str, *pairs: tuple[Any, Any], fn: str | None = None, **files: str) -> Verdict:
        folder = tmp_path / "workspace"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, text in {"solution.py": source, **files}.items():
            (folder / name).write_text(text)
        cases = [{"input": given, "output": expected} for given, expected in pairs]
        return verifier.grade({"kind": "call" if fn else "stdin", "fn_name": fn, "cases": cases, "compare": "lines"}, folder)

    return run


def test_no_text_of_a_former_program_is_in_a_later_one_s_memory(grade: Grade) -> None:
    former = f"# {MARKER}\nx = '{MARKER}, kept'\nprint(input())\n"
    for _ in range(6):  # so that each worker has had it, also as compiled by a first case
        verdict = grade(former, *[("1", "1")] * 3, notes=f"{MARKER}\n" * 3)
        assert verdict.status == "passed", verdict
    for _ in range(4):
        verdict = grade(SEARCH, ("", "0"), ("", "0"))
        assert verdict.status == "passed", verdict


def test_no_module_of_a_former_program_is_loaded_in_a_later_one(grade: Grade) -> None:
    names = "bisect", "decimal", "heapq", "json", "statistics"
    look = f"import sys\nprint([name for name in {names} if name in sys.modules])"
    for _ in range(3):
        assert grade("".join(f"import {name}\n" for name in names) + "print(1)", ("", "1")).status == "passed"
        assert grade("def f(n): return n", ([1], 1), fn="f").status == "passed"
        for _ in range(4):  # workers are used in turn
            verdict = grade(look, ("", "[]"))
            assert verdict.status == "passed", verdict


@pytest.mark.parametrize(("name", "has"), [("heapq", "heappush"), ("struct", "pack"), ("ctypes", "CDLL")])
def test_a_program_s_own_modules_come_before_those_that_a_worker_has(grade: Grade, name: str, has: str) -> None:
    for _ in range(3):
        assert grade(f"import {name}\nprint(hasattr({name}, '{has}'))", ("", "True")).status == "passed"
        verdict = grade(f"import {name}\nprint({name}.own)", ("", "mine"), **{f"{name}.py": "own = 'mine'"})
        assert verdict.status == "passed", verdict


@pytest.mark.parametrize("victims", ["workers", "inits"])
def test_a_killed_worker_or_init_costs_no_verdict(grade: Grade, verifier: DeepCoderVerifier, victims: str) -> None:
    for _ in range(3):
        assert grade("print(input())", ("1", "1")).status == "passed"
    workers = psutil.Process(verifier.server_pid).children()
    killed = workers if victims == "workers" else [init for worker in workers for init in worker.children()]
    assert killed
    for process in killed:
        with suppress(psutil.NoSuchProcess):  # an init whose program is over gives way to the next
            process.kill()
    psutil.wait_procs(killed, timeout=10)
    for _ in range(3):
        verdict = grade("print(input())", ("1", "1"), ("2", "2"))
        assert verdict.status == "passed", verdict


def test_workers_are_few_however_many_kinds_of_programs_come(grade: Grade, verifier: DeepCoderVerifier) -> None:
    server = psutil.Process(verifier.server_pid)
    for name in sorted(AHEAD - {"numpy", "pandas"}):
        assert grade(f"import {name}\nprint(1)", ("", "1")).status == "passed"
    deadline = time.monotonic() + 10
    while len(server.children()) > forked.IDLE_WORKERS and time.monotonic() < deadline:
        os.sched_yield()  # those that were told to end may be on their way
    assert len(server.children()) <= forked.IDLE_WORKERS


def test_a_program_may_recurse_as_deep_as_under_an_interpreter(grade: Grade) -> None:
    program = "n = 0\ndef f():\n    global n\n    n += 1\n    f()\ntry: f()\nexcept RecursionError: print(n)"
    verdict = grade(program, ("", "999"))  # `python solution.py` prints it
    assert verdict.status == "passed", verdict


def test_running_out_of_stack_ends_the_case_only(grade: Grade) -> None:
    program = """
import sys
class Deep:
    def __repr__(self): return repr(self)
sys.setrecursionlimit(10**9)
if input() == "deep": repr(Deep())
print(1)
"""
    verdict = grade(program, ("deep", "1"), ("flat", "1"))
    assert [case.detail for case in verdict.cases] == ["killed by signal 11", ""], verdict
    assert verdict.cases[1].status == "passed"


@pytest.mark.parametrize(
    ("file", "given", "instead"),
    [
        ("lr_pages.py", r"_SETUP, _REGISTER = 425, 427", "_SETUP, _REGISTER = 9999, 427"),
        ("lr_pages.py", r"_SETUP, _REGISTER = 425, 427", "_SETUP, _REGISTER = 425, 9999"),
        ("lr_libc.py", r"(?<=_MADV_COLLAPSE = )1, 2, 25", "1, 2, 9999"),
        ("lr_libc.py", r"(?<=READ, WRITE, EXECUTE = )1, 2, 4", "1, 2, 4096"),
    ],
)
def test_a_system_without_such_calls_grades_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, given: str, instead: str
) -> None:
    """What only makes forks cheaper is left out where the system refuses it."""
    copy = shutil.copytree(forked.MAIN.parent, tmp_path / "forkserver")
    text = (copy / file).read_text()
    assert len(re.findall(given, text)) == 1, "the code that this test alters has changed"
    (copy / file).write_text(re.sub(given, instead, text))
    monkeypatch.setattr(forked, "MAIN", copy / "lr_main.py")
    monkeypatch.setattr("longrein_deepcoder.verifier.ATTEMPTS", 1)  # a second one would hide a worker that ends over it
    (tmp_path / "solution.py").write_text("print(input())")
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": str(n), "output": str(n)} for n in range(3)], "compare": "lines"}
    verifier = DeepCoderVerifier()
    try:
        assert [verifier.grade(hidden, tmp_path).status for _ in range(4)] == ["passed"] * 4
    finally:
        verifier.close()
