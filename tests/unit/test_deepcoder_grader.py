"""The deepcoder verifier: exact statuses for honest and dishonest programs, on the one path that grades them all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from longrein.errors import SandboxError
from longrein.model import Verdict
from longrein_deepcoder.forked import ForkServer
from longrein_deepcoder.verifier import DeepCoderVerifier, DeepCoderVerifierOptions, grade_row

OPTIONS: dict[str, Any] = {"cpu_s": 1.0, "wall_s": 2.0, "memory_mb": 256, "output_kb": 1024, "disk_mb": 8}
Grade = Callable[..., Verdict]


def namespaces_work() -> bool:
    try:
        ForkServer(Path(sys.executable), "namespaces").close()
    except SandboxError:
        return False
    return True


NAMESPACES = namespaces_work()
needs_namespaces = pytest.mark.skipif(not NAMESPACES, reason="no user namespaces here")


@pytest.fixture(scope="module")
def verifier() -> Iterator[DeepCoderVerifier]:
    made = DeepCoderVerifier(DeepCoderVerifierOptions(**OPTIONS))
    yield made
    made.close()


@pytest.fixture
def grade(verifier: DeepCoderVerifier, tmp_path: Path) -> Grade:
    """Grade a program on (input, output) pairs; `fn` makes it a call row."""

    def run(
        source: str | bytes | None, *pairs: tuple[Any, Any], fn: str | None = None, compare: str = "lines",
        files: dict[str, str] | None = None,
    ) -> Verdict:
        workspace = tmp_path / "workspace"
        workspace.mkdir(exist_ok=True)
        for name, text in (files or {}).items():
            (workspace / name).write_text(text)
        if source is not None:
            (workspace / "solution.py").write_bytes(source.encode() if isinstance(source, str) else source)
        cases = [{"input": given, "output": expected} for given, expected in pairs]
        hidden = {"kind": "call" if fn else "stdin", "fn_name": fn, "cases": cases, "compare": compare}
        return verifier.grade(hidden, workspace)

    return run


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
        ("def other(n): return n", "'f'"), ("def f(): return 1", "f() takes 0 positional arguments"), ("f = 3", "'f'"),
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


# Workspace ----------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("fn", [None, "f"])
def test_planted_modules_do_not_reach_the_grader(grade: Grade, fn: str | None) -> None:
    evil = "import os\nos._exit(0)\n"
    names = ("json", "random", "sitecustomize", "usercustomize", "marshal", "ctypes", "encodings", "lr_case", "threading")
    program = "def f(): return 2\nprint(1)"
    verdict = grade(program, ([], 1) if fn else ("", "2"), fn=fn, files={f"{name}.py": evil for name in names})
    assert statuses(verdict) == ["wrong_answer"]
    verdict = grade(program, ([], 2) if fn else ("", "1"), fn=fn)
    assert statuses(verdict) == ["passed"]


@pytest.mark.parametrize("name", ["random", "json", "collections", "ctypes"])
def test_a_program_imports_its_own_module_before_a_standard_one(grade: Grade, name: str) -> None:
    verdict = grade(f"import {name}\nprint({name}.answer)", *[("", "42")] * 2, files={f"{name}.py": "answer = 42\n"})
    assert statuses(verdict) == ["passed"] * 2


@pytest.mark.parametrize(
    "mess",
    [
        "open('seen', 'w')", "open('data.txt', 'w').write('other')", "__import__('os').remove('data.txt')",
        "__import__('os').mkdir('seen')",
        "__import__('os').chmod('data.txt', 0)", "__import__('os').symlink('/etc', 'seen')", "__import__('os').mkfifo('seen')",
        "__import__('os').chmod('.', 0)", "__import__('os').chmod('..', 0)", "import os; os.rename(os.getcwd(), os.getcwd() + 'x')",
        "open('/tmp/seen', 'w')", "open('/dev/shm/seen', 'w')", "open('solution.py', 'w').write('print(1)')",
        "import mmap; f = open('data.txt', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:4] = b'evil'",
        "import os\nfor i in range(200): os.mkdir('d'); os.chdir('d')",
    ],
)
def test_each_case_sees_a_fresh_workspace(grade: Grade, mess: str) -> None:
    program = f"""
import os, stat
here = sorted(os.listdir('.'))
state = [here, stat.S_IMODE(os.stat('.').st_mode) & 0o700, open('data.txt').read(), os.listdir('/tmp'), os.listdir('/dev/shm')]
print(state == [['data.txt', 'solution.py'], 0o700, 'data', [], []] and open('solution.py').readline() == '\\n')
{mess}
"""
    verdict = grade(program, *[("", "True")] * 3, files={"data.txt": "data"})
    assert statuses(verdict) == ["passed"] * 3, verdict


def test_filling_the_disk_hurts_nobody(grade: Grade) -> None:
    program = """
n = 0
try:
    while True:
        with open(f'/tmp/{n}', 'wb') as f: f.write(bytes(500_000))
        n += 1
except OSError: print('full')
"""
    assert statuses(grade(program, ("", "full"), ("", "full"))) == ["passed", "passed"]


# Attacks ------------------------------------------------------------------------------------------------------------

HONEST = "\nimport sys\nn = int(sys.stdin.readline())\nprint(n * 2)\n"


@needs_namespaces
@pytest.mark.parametrize(
    "attack",
    [
        "import os\nif os.fork() == 0:\n    os.setsid()\n    import time\n    if os.fork() == 0: time.sleep(600)\n    os._exit(0)",
        "import subprocess; subprocess.Popen(['sleep', '600'], start_new_session=True)",
        "import os, signal\ntry: os.kill(-1, signal.SIGTERM)\nexcept OSError: pass",
        "import os, signal\nfor s in (9, 15, 2, 19, 10):\n    try: os.kill(os.getppid(), s)\n    except OSError: pass",
        "import os\nfor fd in range(3, 300):\n    try: os.write(fd, b'{\"exit\": 0}')\n    except OSError: pass",
        "import resource, os\ntry: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (0, 0))\nexcept (OSError, ValueError): pass",
        "import os\ntry: os.sched_setaffinity(1, {0})\nexcept OSError: pass",
        "import ctypes; ctypes.CDLL(None).ptrace(16, 1, 0, 0)",
        "import socket\ntry: s = socket.socket(socket.AF_UNIX); s.bind('\\0x')\nexcept OSError: pass",
        "import builtins; builtins.open = None; import json; json.dumps = json.loads = None",
        "import os, sys, atexit, gc, json, marshal\nos._exit = gc.collect = json.dumps = marshal.loads = None",
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    ],
)
def test_attacks_change_nothing(grade: Grade, attack: str) -> None:
    verdict = grade(attack + HONEST, *[(f"{n}\n", str(2 * n)) for n in range(3)])
    assert statuses(verdict) == ["passed"] * 3, verdict


@needs_namespaces
@pytest.mark.parametrize(
    ("attack", "status"),
    [
        ("import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", {"timeout"}),
        ("import threading, time\nwhile True: threading.Thread(target=time.sleep, args=(9,)).start()", {"runtime_error", "timeout"}),
        ("import os\nfor _ in range(8):\n    if os.fork() == 0: break\nx = []\nwhile True: x.append(bytearray(1 << 20))", {"memory_limit"}),
        ("import sys\nf = sys._getframe()\nwhile f: print(f.f_locals, f.f_globals); f = f.f_back", {"wrong_answer"}),
        ("import gc\nfor o in gc.get_objects(): print(repr(o)[:500])", {"wrong_answer", "runtime_error", "output_limit"}),
        ("import os\nos.close(1); os.close(2)", {"wrong_answer", "runtime_error"}),
        ("import ctypes; ctypes.string_at(0)", {"runtime_error"}),
    ],
)
def test_attacks_gain_nothing(grade: Grade, attack: str, status: set[str]) -> None:
    verdict = grade(attack, ("", "canary-5d1f"))
    assert set(statuses(verdict)) <= status, verdict
    assert statuses(grade(HONEST, ("4\n", "8"))) == ["passed"]


@needs_namespaces
def test_no_secret_and_no_host_file_in_reach(grade: Grade, tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("canary-77aa")
    program = f"""
import os
names = ('/home', '/root/.ssh', '/etc/shadow', '/var', '/sys', '/proc/1/root/etc', {str(secret)!r})
found = [name for name in names if os.path.exists(name)]
for pid in os.listdir('/proc'):
    for name in ('environ', 'maps', 'cmdline'):
        try: text = open(f'/proc/{{pid}}/{{name}}', 'rb').read()
        except OSError: continue
        if b'canary' in text: found.append(pid)
print(found, len(os.listdir('/proc/self/fd')))
"""
    verdict = grade(program, ("", "[] 4"))
    assert statuses(verdict) == ["passed"], verdict


@needs_namespaces
def test_cases_cannot_leave_messages_in_the_kernel(grade: Grade) -> None:
    program = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
print(libc.shmget(0x1234, 4096, 0o1666), libc.msgget(0x1234, 0o1666), libc.syscall(319, b'x', 0))
"""
    if os.uname().machine == "x86_64":
        assert statuses(grade(program, ("", "-1 -1 -1"))) == ["passed"]


@needs_namespaces
def test_no_network_and_no_privilege(grade: Grade) -> None:
    program = """
import os, socket
print(os.getuid() != 0, open('/proc/self/status').read().split('CapEff:')[1].split()[0])
try: socket.socket()
except PermissionError: print('no sockets')
try: open('/usr/x', 'w')
except OSError as error: print(error.strerror)
"""
    assert statuses(grade(program, ("", "True 0000000000000000\nno sockets\nRead-only file system"))) == ["passed"]


# The grader itself --------------------------------------------------------------------------------------------------

def test_without_namespaces_the_statuses_are_the_same(tmp_path: Path) -> None:
    options = DeepCoderVerifierOptions(**{**OPTIONS, "isolation": "processes"})
    verifier = DeepCoderVerifier(options)
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "1", "output": "1"}], "compare": "lines"}
    try:
        for program, status in [
            ("print(input())", "passed"), ("print(0)", "wrong_answer"), ("1/0", "runtime_error"), ("while True: pass", "timeout"),
            ("while True: print('x' * 999)", "output_limit"), ("x =", "compile_error"), ("x = bytearray(1 << 40)", "memory_limit"),
            ("import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: time.sleep(99)\n    exit()\nprint(1)", "passed"),
        ]:
            (tmp_path / "solution.py").write_text(program)
            verdict = verifier.grade(hidden, tmp_path)
            assert statuses(verdict) == [status], (program, verdict)
            assert verdict.details["isolation"] == "processes"
    finally:
        verifier.close()


def test_unusable_interpreter_is_unscorable(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("print(1)")
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    verifier = DeepCoderVerifier(DeepCoderVerifierOptions(python=broken))
    verdict = verifier.grade({"kind": "stdin", "fn_name": None, "cases": [{"input": "", "output": "1"}], "compare": "lines"}, tmp_path)
    assert (verdict.status, verdict.score) == ("unscorable", None)


def test_a_killed_server_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("print(1)")
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "", "output": "1"}], "compare": "lines"}
    verifier = DeepCoderVerifier(DeepCoderVerifierOptions(**OPTIONS))
    assert verifier.grade(hidden, tmp_path).status == "passed"
    assert verifier._server is not None
    verifier._server._process.kill()
    verifier._server._process.wait()
    assert verifier.grade(hidden, tmp_path).status == "passed"
    verifier.close()


def test_grade_row_grades_every_case(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("def sq(n):\n    return n * n if n < 4 else 0\n")
    tests = {"fn_name": "sq", "inputs": [[n] for n in range(5)], "outputs": [[n * n] for n in range(5)]}
    row = {"problem": "Return n*n.", "tests": json.dumps(tests)}
    graded = grade_row("taco", row, tmp_path)
    assert (graded["status"], graded["score"]) == ("failed", 0.8)
    assert [case["status"] for case in graded["cases"]] == ["passed"] * 4 + ["wrong_answer"]
    assert json.loads(json.dumps(graded)) == graded


def test_grade_row_rejects_with_a_reason(tmp_path: Path) -> None:
    graded = grade_row("taco", {"problem": "x", "tests": "{"}, tmp_path)
    assert graded["status"] == "rejected"
    assert graded["score"] is None
    assert "not JSON" in graded["reason"]


def test_a_killed_grader_leaves_no_process(tmp_path: Path) -> None:
    (tmp_path / "solution.py").write_text("import os\nos.fork()\nos.fork()\nwhile True: pass\n")
    program = f"""
import os, sys
from pathlib import Path
from longrein_deepcoder.verifier import DeepCoderVerifier
verifier = DeepCoderVerifier()
print(verifier._ready()._process.pid, flush=True)
verifier.grade({{"kind": "stdin", "fn_name": None, "compare": "lines", "cases": [{{"input": "", "output": ""}}]}}, Path({str(tmp_path)!r}))
"""
    grader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert grader.stdout is not None
    server = int(grader.stdout.readline())
    watched = os.pidfd_open(server)
    grader.kill()
    grader.wait()
    grader.stdout.close()
    import select

    assert select.select([watched], [], [], 10)[0] == [watched]
    os.close(watched)


def test_several_grades_at_once_do_not_mix(verifier: DeepCoderVerifier, tmp_path: Path) -> None:
    def one(number: int) -> list[str]:
        workspace = tmp_path / str(number)
        workspace.mkdir()
        (workspace / "solution.py").write_text(f"open('mine', 'w').write('{number}')\nprint(int(input()) + {number})\n")
        cases = [{"input": str(n), "output": str(n + number)} for n in range(4)] + [{"input": "0", "output": str(number + 1)}]
        return statuses(verifier.grade({"kind": "stdin", "fn_name": None, "cases": cases, "compare": "lines"}, workspace))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(one, range(24))) == [["passed"] * 4 + ["wrong_answer"]] * 24


def test_the_verdict_is_the_same_with_both_cores_busy(grade: Grade) -> None:
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        program = "import time\nwhile time.process_time() < 0.5: pass\nprint(1)"
        verdict = grade(program, ("", "1"))
        assert statuses(verdict) == ["passed"], verdict
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def test_hundreds_of_grades_leave_nothing_behind(tmp_path: Path) -> None:
    def leftovers(server: int) -> tuple[int, int, list[str], int]:
        """Open files of both processes, children, folders."""
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        folders = list(Path(tempfile.gettempdir()).glob("longrein-grade-*"))
        here, there = (sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()) for pid in (os.getpid(), server))
        return here, there, children, len(folders)

    program = "import os\nif os.fork() == 0:\n    os.setsid()\n    while True: pass\nopen('x', 'w')\nprint(input())"
    (tmp_path / "solution.py").write_text(program)
    hidden = {"kind": "stdin", "fn_name": None, "cases": [{"input": "1", "output": "1"}], "compare": "lines"}
    verifier = DeepCoderVerifier(DeepCoderVerifierOptions(**OPTIONS))
    assert verifier.grade(hidden, tmp_path).status == "passed"
    files_here, files_there, _, folders = leftovers(verifier.server_pid)
    expected = (files_here, files_there, [], folders)
    for _ in range(150):
        assert verifier.grade(hidden, tmp_path).status == "passed"
    deadline = time.monotonic() + 10
    while leftovers(verifier.server_pid) != expected and time.monotonic() < deadline:
        os.sched_yield()
    assert leftovers(verifier.server_pid) == expected
    pid = verifier.server_pid
    verifier.close()
    assert not Path(f"/proc/{pid}").exists()
