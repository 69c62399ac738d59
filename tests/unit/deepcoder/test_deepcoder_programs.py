"""The deepcoder verifier on honest programs: exact statuses for what they print, read, return and do wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longrein.model import Verdict
from longrein_deepcoder.verifier import DeepCoderVerifier

Grade = Callable[..., Verdict]


def statuses(verdict: Verdict) -> list[str]:
    return [case.status for case in verdict.cases]


# What programs print ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "given", "expected", "status"),
    [
        ("print('NO')", "", "YES", "wrong_answer"),
        ("print('YES')", "", "YES", "passed"),
        ("print(3)", "", "4", "wrong_answer"),
        ("print('2\\n1')", "", "1\n2", "wrong_answer"),
        ("print('1   \\n2\\t')", "", "1\n2\n", "passed"),
        ("print('1\\n2\\n\\n')", "", "1\n2", "passed"),
        ("print('1\\n2', end='')", "", "1\n2\n\n", "passed"),
        ("print('1\\r\\n2\\r')", "", "1\n2\n", "passed"),
        ("print('1\\n2')", "", "1\r\n2\r\n", "passed"),
        ("print(' 1')", "", "1", "wrong_answer"),
        ("print('1  2')", "", "1 2", "wrong_answer"),
        ("print('1 2 3')", "", "1\n2\n3", "wrong_answer"),
        ("print('\\n1')", "", "1", "wrong_answer"),
        ("pass", "", "", "passed"),
        ("raise ValueError('no')", "", "", "runtime_error"),
        ("print(1); raise SystemExit(3)", "", "1", "runtime_error"),
        ("print('yes')", "", "YES", "wrong_answer"),
        ("import sys; sys.stdout.buffer.write(b'\\xff\\xfe')", "", "x", "wrong_answer"),
        ("import sys; sys.stdout.buffer.write(b'\\xef\\xbb\\xbf1')", "", "1", "wrong_answer"),
        ("print('1\\0')", "", "1", "wrong_answer"),
        ("print('\\u00e9\\u4e2d')", "", "\u00e9\u4e2d", "passed"),
    ],
)
def test_lines(grade: Grade, program: str, given: str, expected: str, status: str) -> None:
    assert statuses(grade(program, (given, expected))) == [status]


@pytest.mark.parametrize(
    ("compare", "printed", "expected", "status"),
    [
        ("float", "0.3333333333", "0.333333", "passed"),
        ("float", "0.34", "0.333333", "wrong_answer"),
        ("float", "1000001", "1000000", "wrong_answer"),
        ("float", "3", "3.0", "passed"),
        ("float", "nan", "3.0", "wrong_answer"),
        ("float", "1e6 x", "1000000.0 x", "passed"),
        ("float", "0.5\n0.5", "0.5 0.5", "wrong_answer"),
        ("tokens", "1 2 3", "1\n2\n3", "passed"),
        ("tokens", "1 2", "1\n2\n3", "wrong_answer"),
        ("icase", "Yes", "YES", "passed"),
        ("icase", "No", "YES", "wrong_answer"),
    ],
)
def test_other_modes(grade: Grade, compare: str, printed: str, expected: str, status: str) -> None:
    verdict = grade(f"print({printed!r})", ("", expected), compare=compare)
    assert statuses(verdict) == [status]
    assert verdict.details["compare"] == compare


# How programs read and end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        "print(sum(map(int, input().split())))",
        "import sys; print(sum(map(int, sys.stdin.read().split())))",
        "import sys; print(sum(map(int, sys.stdin.buffer.read().split())))",
        "import sys; print(sum(map(int, sys.stdin.readline().split())))",
        "import sys; print(sum(map(int, next(iter(sys.stdin)).split())))",
        "print(sum(map(int, open(0).read().split())))",
        "import os; print(sum(map(int, os.read(0, 1000).split())))",
        "print(sum(map(int, open('/dev/stdin').read().split())))",
        "import io, os; print(sum(map(int, io.BytesIO(os.read(0, os.fstat(0).st_size)).read().split())))",
        "import fileinput; print(sum(int(x) for line in fileinput.input() for x in line.split()))",
        "import sys; input = sys.stdin.buffer.readline; print(sum(map(int, input().split())))",
        "import sys; print(sum(map(int, sys.stdin.readlines()[0].split())))",
        "a = input()\ntry: input()\nexcept EOFError: print(sum(map(int, a.split())))",
        "import sys; data = iter(sys.stdin.read().split()); print(int(next(data)) + int(next(data)))",
        "import sys; sys.setrecursionlimit(10**6); sys.stdin = open(0); print(sum(map(int, input().split())))",
        "import mmap; m = mmap.mmap(0, 0, access=mmap.ACCESS_READ); print(sum(map(int, m[:].split())))",
        "import sys; first = sys.stdin.read(2); print(int(first) + int(sys.stdin.readline()))",
        "import sys; print(sum(map(int, sys.__stdin__.readline().split())), file=sys.__stdout__)",
    ],
)
def test_every_way_of_reading(grade: Grade, program: str) -> None:
    assert statuses(grade(program, ("1 2\n", "3"), ("20 5\n", "25"))) == ["passed", "passed"]


@pytest.mark.parametrize(
    "program",
    [
        "import sys; print(7); sys.exit(0)",
        "import os, sys; print(7); sys.stdout.flush(); os._exit(0)",
        "print(7); exit()",
        "print(7); raise SystemExit",
        "import atexit; atexit.register(lambda: print(7))",
        "import threading; threading.Thread(target=lambda: print(7)).start()",
        "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); print(7)",
        "f = open(1, 'w', closefd=False); f.write('7')",
        "import sys, io; sys.stdout = io.TextIOWrapper(sys.stdout.buffer); sys.stdout.write('7')",
        "import os; os.write(1, b'7')",
        "open('/dev/stdout', 'w').write('7')",
        "class A:\n    def __del__(self): print(7)\na = A()",
        "if __name__ == '__main__':\n    x = 7\nprint(x)",
        "x = 6\ndef f():\n    global x\n    x += 1\nf()\nprint(x)",
        "import sys; print(7 if sys.modules['__main__'].__dict__ is globals() else 0)",
        "import pickle\nclass A: pass\nprint(7 if isinstance(pickle.loads(pickle.dumps(A())), A) else 0)",
        "import subprocess; print(subprocess.run(['echo', '7'], capture_output=True, text=True).stdout)",
        "from multiprocessing import Pool\ndef f(x): return 7\nif __name__ == '__main__':\n    with Pool(2) as p: print(*p.map(f, [6]))",
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(990) - 983)",
        "import tempfile\nwith tempfile.TemporaryFile() as f: f.write(b'7'); f.seek(0); print(f.read().decode())",
        "import asyncio\nasync def f(): await asyncio.sleep(0); print(7)\nasyncio.run(f())",
        "import numpy; print(int(numpy.array([3, 4]).sum()))",
        "import random; random.seed(5); a = random.random(); random.seed(5); print(7 if a == random.random() else 0)",
        "from random import shuffle, randint\nx = [7] * 3\nshuffle(x)\nprint(x[randint(0, 2)])",
        "import threading, queue\nq = queue.Queue()\nt = threading.Thread(target=q.put, args=(7,)); t.start(); print(q.get())",
        "import threading; print(7 if threading.current_thread() is threading.main_thread() else 0)",
        "from functools import lru_cache\n@lru_cache(None)\ndef f(n): return n if n < 8 else f(n - 1) + 0\nprint(f(60))",
        "from decimal import Decimal; from fractions import Fraction; print(int(Decimal(3) + 4 * Fraction(1, 1).numerator))",
        "import sys, numpy as np, math\nprint(int(np.array([3.0, 4.0]).sum() * math.gcd(3, 4)))",
        "def main():\n    print(7)\nmain() if __name__ == '__main__' else None",
        "class A:\n    def __del__(self): print(7)\na = A(); a.a = a; del a",
        "import signal, os\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    signal.pause()\nexcept KeyboardInterrupt: print(7)",
        "import os, sys\nif (pid := os.fork()) == 0: print(7); sys.stdout.flush(); os._exit(0)\nos.waitpid(pid, 0)",
        "import io, sys\nout = io.StringIO(); sys.stdout = out; print(7); sys.__stdout__.write(out.getvalue())",
        "x = 0\ndef f():\n    global x\n    x = 7\nif __name__ == '__main__': f()\nprint(x)",
        "\ufeffprint(7)",
        "# -*- coding: latin-1 -*-\nprint(7)",
    ],
)
def test_what_a_real_interpreter_does_is_right(grade: Grade, program: str) -> None:
    verdict = grade(program, ("", "7"))
    assert statuses(verdict) == ["passed"], verdict


def test_deep_recursion_in_a_thread_with_a_big_stack(grade: Grade) -> None:
    program = """
import sys, threading
sys.setrecursionlimit(10**6)
threading.stack_size(2**28)
def depth(n): return 0 if n == 0 else 1 + depth(n - 1)
def main(): print(depth(int(input())))
t = threading.Thread(target=main); t.start(); t.join()
"""
    assert statuses(grade(program, ("100000", "100000"))) == ["passed"]


def test_random_numbers_differ_between_cases(grade: Grade) -> None:
    """A program that imports random is given it loaded; its state must not be shared by all cases."""
    verdict = grade("import random\nprint(random.getrandbits(256))", ("", "x"), ("", "x"), ("", "x"))
    assert len({case.got for case in verdict.cases}) == 3


def test_recursion_limit_is_that_of_an_interpreter(grade: Grade) -> None:
    verdict = grade("def f(n): return f(n + 1)\nf(0)", ("", ""))
    assert statuses(verdict) == ["runtime_error"]
    assert "RecursionError" in verdict.cases[0].detail


def test_five_megabytes_on_one_line(grade: Grade) -> None:
    text = "7" * 5_000_000 + "\n"
    assert statuses(grade("print(len(input()))", (text, "5000000"))) == ["passed"]


def test_large_output_of_the_right_text(grade: Grade) -> None:
    assert statuses(grade("print('ab ' * 300_000)", ("", "ab " * 300_000))) == ["passed"]


def test_the_same_program_file_by_file(grade: Grade) -> None:
    helper = {"helper.py": "def add(a, b): return a + b\n"}
    verdict = grade("from helper import add\nprint(add(*map(int, input().split())))", ("1 2", "3"), files=helper)
    assert statuses(verdict) == ["passed"]


# Statuses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("while True: pass", "timeout"),
        ("import time; time.sleep(600)", "timeout"),
        ("print('x', flush=True)\nwhile True: pass", "timeout"),
        ("while True: print('x' * 1000)", "output_limit"),
        ("import sys\nwhile True: sys.stderr.write('x' * 1000)", "output_limit"),
        ("import os\nwhile True:\n    try: os.write(1, b'x' * 1000)\n    except OSError: pass", "output_limit"),
        ("x = bytearray(1 << 40)", "memory_limit"),
        ("x = []\nwhile True: x.append(bytearray(1 << 20))", "memory_limit"),
        ("x = bytearray(300 << 20)\nprint('x')", "memory_limit"),
        ("1 / 0", "runtime_error"),
        ("import os; os.abort()", "runtime_error"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "runtime_error"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "timeout"),
        ("input()", "runtime_error"),
        ("import no_such_module", "runtime_error"),
        ("exec('x = ')", "runtime_error"),
        ("x = ", "compile_error"),
        ("return 1", "compile_error"),
        ("\tx = 1\n  y = 2", "compile_error"),
        ("x = 1\0", "compile_error"),
        (b"x = '\xff'", "compile_error"),
        ("x = " + "(" * 5000 + ")" * 5000, "compile_error"),
        ("", "no_solution"),
        ("  \n\n", "no_solution"),
        (None, "no_solution"),
    ],
)
def test_failing_statuses(grade: Grade, program: str | bytes | None, status: str) -> None:
    verdict = grade(program, ("", "x"))
    assert statuses(verdict) == [status], verdict
    assert (verdict.status, verdict.score) == ("failed", 0.0)


def test_every_case_of_an_uncompilable_program_says_so(grade: Grade) -> None:
    assert statuses(grade("x = ", ("1", "1"), ("2", "2"))) == ["compile_error", "compile_error"]


def test_score_is_the_share_of_passed_cases(grade: Grade) -> None:
    verdict = grade("print(abs(int(input())))", ("1", "1"), ("-2", "-2"), ("3", "3"), ("x", "4"))
    assert statuses(verdict) == ["passed", "wrong_answer", "passed", "runtime_error"]
    assert verdict.score == 0.5
    assert "2 of 4" in verdict.reason


def test_solution_that_is_no_regular_file(verifier: DeepCoderVerifier, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text("print(1)")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "solution.py").symlink_to(tmp_path / "elsewhere.py")
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "", "output": "1"}], "compare": "lines"}
    assert statuses(verifier.grade(hidden, workspace)) == ["no_solution"]


def test_excerpts_are_short_and_printable(grade: Grade) -> None:
    verdict = grade("print('\\x1b[31m' + 'x' * 5000)", ("", "y" * 5000))
    case = verdict.cases[0]
    assert len(case.got) < 300
    assert len(case.expected) < 300
    assert "\x1b" not in case.got


# Calls --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "arguments", "expected", "status"),
    [
        ("return [1, 2, 3]", [], [1, 2, 3], "passed"),
        ("return (1, 2, 3)", [], [1, 2, 3], "passed"),
        ("return [[1, 2, 3]]", [], [1, 2, 3], "wrong_answer"),
        ("return 1", [], [1, 2, 3], "wrong_answer"),
        ("return '12'", [], "12", "passed"),
        ("return 12", [], "12", "wrong_answer"),
        ("return '12'", [], 12, "wrong_answer"),
        ("return {1: 'a', 2: 'b'}", [], {"1": "a", "2": "b"}, "passed"),
        ("return {1: 'a'}", [], {"1": "a", "2": "b"}, "wrong_answer"),
        ("return None", [], None, "passed"),
        ("return None", [], 0, "wrong_answer"),
        ("return True", [], True, "passed"),
        ("return args[0] + args[1]", [[1], [2]], [1, 2], "passed"),
        ("return args[0][1]", [{1: "one"}], "one", "passed"),
        ("print('noise'); return 5", [], 5, "passed"),
        ("class A:\n        def __eq__(self, other): return True\n        __hash__ = None\n    return A()", [], 5, "wrong_answer"),
        ("class A(int):\n        def __eq__(self, other): return True\n        __hash__ = None\n    return A(4)", [], 5, "wrong_answer"),
        ("x = []; x.append(x); return x", [], [[]], "wrong_answer"),
        ("return {1, 2}", [], [1, 2], "wrong_answer"),
        ("return float('nan')", [], 1.5, "wrong_answer"),
        ("raise ValueError('x')", [], 5, "runtime_error"),
        ("import os; os._exit(0)", [], 5, "runtime_error"),
        ("import sys; sys.exit(0)", [], 5, "runtime_error"),
        ("while True: pass", [], 5, "timeout"),
        ("return 'x' * (2 << 20)", [], 5, "output_limit"),
    ],
)
def test_calls(grade: Grade, body: str, arguments: list[Any], expected: Any, status: str) -> None:
    verdict = grade(f"def f(*args):\n    {body}\n", (arguments, expected), fn="f")
    assert statuses(verdict) == [status], verdict


@pytest.mark.parametrize(("value", "status"), [("10**5000", "passed"), ("10**5000 + 1", "wrong_answer"), ("args[0]", "passed")])
def test_numbers_of_many_digits(grade: Grade, value: str, status: str) -> None:
    assert statuses(grade(f"def f(*args): return {value}", ([10**5000], 10**5000), fn="f")) == [status]


def test_call_of_a_method(grade: Grade) -> None:
    program = "class Solution:\n    def twice(self, n):\n        return 2 * n\n"
    assert statuses(grade(program, ([4], 8), fn="twice")) == ["passed"]


def test_main_guard_of_a_call_row_does_not_run(grade: Grade) -> None:
    assert statuses(grade("def f(): return 1\nif __name__ == '__main__': print(f(input()))", ([], 1), fn="f")) == ["passed"]


@pytest.mark.parametrize(
    ("program", "named"),
    [
        ("def other(n): return n", "'f'"),
        ("def f(): return 1", "f() takes 0 positional arguments"),
        ("f = 3", "'f'"),
        ("class Solution: pass", "'f'"),
    ],
)
def test_missing_function_or_wrong_arity_is_named(grade: Grade, program: str, named: str) -> None:
    verdict = grade(program, ([1], 1), fn="f")
    assert statuses(verdict) == ["runtime_error"]
    assert named in verdict.cases[0].detail


def test_float_mode_of_a_call(grade: Grade) -> None:
    assert statuses(grade("def f(): return [1 / 3, 2]", ([], [0.333333, 2]), fn="f", compare="float")) == ["passed"]
    assert statuses(grade("def f(): return [1 / 3, 2]", ([], [0.333333, 2]), fn="f")) == ["wrong_answer"]


def test_more_than_fifteen_call_cases(grade: Grade) -> None:
    assert grade("def sq(n): return n * n", *[([n], n * n) for n in range(20)], fn="sq").status == "passed"
