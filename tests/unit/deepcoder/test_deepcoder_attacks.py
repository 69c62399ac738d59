"""The deepcoder verifier on programs that make a mess or attack: nothing changes another case, survives or gains a point."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from longrein.errors import SandboxError
from longrein.model import Verdict
from longrein_deepcoder.forked import ForkServer
from longrein_deepcoder.verifier import DeepCoderVerifier, DeepCoderVerifierOptions

Grade = Callable[..., Verdict]


def namespaces_work() -> bool:
    try:
        ForkServer(Path(sys.executable), "namespaces", DeepCoderVerifierOptions().limits).close()
    except SandboxError:
        return False
    return True


NAMESPACES = namespaces_work()
needs_namespaces = pytest.mark.skipif(not NAMESPACES, reason="no user namespaces here")


def statuses(verdict: Verdict) -> list[str]:
    return [case.status for case in verdict.cases]


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


def test_what_is_imported_ahead_is_never_the_workspaces(grade: Grade) -> None:
    """The init imports for the program; a module of the workspace runs in the cases only, where it has no other descriptor."""
    spy = "import os\nanswer = sorted(map(int, os.listdir('/proc/self/fd')))[-1] > 9 or os.getpid() == 1\n"
    for name in ("numpy", "random", "json"):
        verdict = grade(f"import {name}\nprint({name}.answer)", *[("", "False")] * 2, files={f"{name}.py": spy})
        assert statuses(verdict) == ["passed"] * 2


@pytest.mark.parametrize("name", ["random", "json", "collections", "ctypes"])
def test_a_program_imports_its_own_module_before_a_standard_one(grade: Grade, name: str) -> None:
    verdict = grade(f"import {name}\nprint({name}.answer)", *[("", "42")] * 2, files={f"{name}.py": "answer = 42\n"})
    assert statuses(verdict) == ["passed"] * 2


@pytest.mark.parametrize(
    "mess",
    [
        "open('seen', 'w')",
        "open('data.txt', 'w').write('other')",
        "__import__('os').remove('data.txt')",
        "__import__('os').mkdir('seen')",
        "__import__('os').chmod('data.txt', 0)",
        "__import__('os').symlink('/etc', 'seen')",
        "__import__('os').mkfifo('seen')",
        "__import__('os').chmod('.', 0)",
        "__import__('os').chmod('..', 0)",
        "import os; os.rename(os.getcwd(), os.getcwd() + 'x')",
        "open(os.environ['TMPDIR'] + '/seen', 'w')",
        "open('/dev/shm/seen', 'w')",
        "open('solution.py', 'w').write('print(1)')",
        "import mmap; f = open('data.txt', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[:4] = b'evil'",
        "import os\nfor i in range(200): os.mkdir('d'); os.chdir('d')",
    ],
)
def test_each_case_sees_a_fresh_workspace(grade: Grade, mess: str) -> None:
    program = f"""
import os, stat
here = sorted(os.listdir('.'))
scratch = [os.listdir(os.environ['TMPDIR']), os.listdir('/dev/shm')]
state = [here, stat.S_IMODE(os.stat('.').st_mode) & 0o700, open('data.txt').read(), *scratch]
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
        "import os, signal\nsignal.signal(15, signal.SIG_IGN)\nos.kill(0, 15)\nos.killpg(os.getpgrp(), 15)",
        "import os\nfor pid in range(1, 50):\n    try: os.setpgid(0, pid)\n    except OSError: pass",
        "import os\nfor _ in range(4):\n    if os.fork() == 0:\n        while True: pass",
        "import os, threading\nthreading.Thread(target=lambda: os.fork() or os._exit(7), daemon=True).start()",
        "import fcntl, os\nfcntl.fcntl(1, fcntl.F_SETFL, os.O_APPEND)\nfcntl.flock(2, fcntl.LOCK_EX)",
        "import random, sys; random.seed = lambda *_: None; sys.modules['random'] = None; sys.path[:] = []",
        "import os\nfor name in os.listdir('/proc/self/fd'):\n    if int(name) > 2:\n"
        "        try: os.write(int(name), bytes(29))\n        except OSError: pass",
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
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", {"runtime_error"}),
        ("import builtins; builtins.print = lambda *a, **k: None; print('canary-5d1f')", {"wrong_answer"}),
        ("class Any(str):\n    __eq__ = lambda *_: True\n    __hash__ = str.__hash__\nprint(Any('x'))", {"wrong_answer"}),
        (
            "import sys\nif any(n.startswith('lr_') for m in list(sys.modules.values()) for n in dir(m)): print('canary-5d1f')",
            {"wrong_answer"},
        ),
        ('print(\'{"exit": 0, "ended_by": ""}\')', {"wrong_answer"}),
        ("import os, struct; os.write(1, struct.pack('=iBddd', 0, 0, 0, 0, 0))", {"wrong_answer"}),
    ],
)
def test_attacks_gain_nothing(grade: Grade, attack: str, status: set[str]) -> None:
    verdict = grade(attack, ("", "canary-5d1f"))
    assert set(statuses(verdict)) <= status, verdict
    assert statuses(grade(HONEST, ("4\n", "8"))) == ["passed"]


@needs_namespaces
@pytest.mark.parametrize(
    ("attack", "status"),
    [
        ("def f(n):\n    class Same:\n        def __eq__(self, other): return True\n    return Same()", "wrong_answer"),
        ("import json\njson.dumps = lambda *_, **__: '6'\ndef f(n): return 5", "wrong_answer"),
        ("import builtins\nbuiltins.open = lambda *_, **__: None\ndef f(n): return 6", "runtime_error"),
        ("import os\nos.write(202, b'6')\ndef f(n): os._exit(0)", "passed"),  # that is its answer: the value's own channel
        ("import os\ndef f(n): os._exit(0)", "runtime_error"),
        ("import sys\ndef f(n):\n    frame, found = sys._getframe(), [0]\n    while frame:\n"
         "        found += [v for v in frame.f_locals.values() if v == 6]\n"
         "        frame = frame.f_back\n    return found[-1]", "wrong_answer"),
    ],
)  # fmt: skip
def test_attacks_on_calls(grade: Grade, attack: str, status: str) -> None:
    assert statuses(grade(attack, ([3], 6), fn="f")) == [status]


@needs_namespaces
def test_a_neighbour_is_not_disturbed(verifier: DeepCoderVerifier, tmp_path: Path) -> None:
    """Signals to groups and to everything reach no other box, though all boxes run as one user of the host."""
    attack = (
        "import os, signal\nfor pid in (-1, 0, *range(2, 400)):\n    for number in (15, 9):\n"
        "        if pid != os.getpid() and not (pid == 0 and number == 9):\n            signal.signal(15, signal.SIG_IGN)\n"
        "            try: os.kill(pid, number)\n            except OSError: pass\nos.kill(0, 9)\n"
    )
    honest = "import time\nn = int(input())\nend = time.process_time() + 0.05\nwhile time.process_time() < end: pass\nprint(n)\n"

    def one(number: int) -> list[str]:
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "solution.py").write_text(attack if number % 2 else honest)
        cases = [{"input": str(n), "output": str(n)} for n in range(3)]
        return statuses(verifier.grade({"kind": "stdin", "fn_name": None, "cases": cases, "compare": "lines"}, folder))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(one, range(12)))
    assert results[::2] == [["passed"] * 3] * 6
    assert results[1::2] == [["runtime_error"] * 3] * 6


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
