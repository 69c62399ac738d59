"""Programs that attack the verifier "pytest": none gets a point."""

from __future__ import annotations

import pytest
from tests.unit.graders.conftest import Check

TESTS = """
import json
from solution import f

def test_one():
    assert f(1) == 17

def test_two():
    assert json.loads("[2]") == [2]
    assert f(2) == 18
"""
FAKE_REPORT = """
import glob, os
for path in glob.glob("/tmp/longrein-verify-*/report.jsonl") + glob.glob("/proc/*/cwd/../report.jsonl"):
    open(path, "a").write('{"test": "test_it.py::test_one", "passed": true, "duration_s": 0}\\n{"finished": 0}\\n')
for fd in range(3, 64):
    try: os.write(fd, b'\\0\\0\\0\\x0d{"value": 17}')
    except OSError: pass
def f(n): return 0
"""
SEARCH = """
import os
def found(n):
    for base in ("/work", "/tmp", "/root", "/home", "/proc", "/dev/shm", "/var", "/opt", "/mnt"):
        for parent, _, names in os.walk(base):
            for name in names:
                if name == "test_it.py" or (name in ("environ", "cmdline", "maps") and parent.count("/") == 2):
                    try: text = open(os.path.join(parent, name)).read()
                    except OSError: continue
                    if "test_it" in text or "def test_one" in text: return {1: 17, 2: 18}[n]
    return 0
f = found
"""
EQUAL = "class Same:\n    def __eq__(self, other): return True\n    def __hash__(self): return hash(17)\ndef f(n): return Same()"
WALK = """
import sys
def f(n):
    frame = sys._getframe()
    while frame:
        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
            if value in (17, 18): return value
        frame = frame.f_back
    return 0
"""
KILL = """
import os
for pid in (-1, *range(2, 400)):
    try: os.kill(pid, 9)
    except OSError: pass
def f(n): return 0
"""
JUNK = """
import os
def f(n):
    for fd in range(3, 20):
        try: os.write(fd, b"\\xff" * 100)
        except OSError: pass
    return 0
"""
PATCH = """
import builtins, sys
builtins.isinstance = lambda *a: True
for name in ("pytest", "_pytest.runner", "_pytest.assertion"): sys.modules[name] = None
def f(n): return 0
"""
ATTACKS = {
    "exits": "import os\nos._exit(0)",
    "exits when asked": "import os\ndef f(n): os._exit(0)",
    "leaves by SystemExit": "raise SystemExit(0)",
    "interrupts": "def f(n): raise KeyboardInterrupt",
    "equal to everything": EQUAL,
    "equal text": "class S(str):\n    def __eq__(self, o): return True\ndef f(n): return S('x')",
    "equal number": "class I(int):\n    def __eq__(self, o): return True\ndef f(n): return I(0)",
    "skips": "import unittest\nraise unittest.SkipTest('later')",
    "patches pytest and builtins": PATCH,
    "walks frames": WALK,
    "writes the report and the channel": FAKE_REPORT,
    "searches for the tests": SEARCH,
    "kills everything": KILL,
    "answers with junk": JUNK,
}
HOOK = """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport():
    out = yield
    out.get_result().outcome = "passed"
"""
PLANTED = {
    "conftest.py": HOOK,
    "pytest.ini": "[pytest]\naddopts = --collect-only\n",
    "sitecustomize.py": "import os; os._exit(0)",
    "usercustomize.py": "import os; os._exit(0)",
    "json.py": "def loads(text): return [2]",
    "pytest.py": "",
    "test_it.py": "def test_one(): pass\ndef test_two(): pass\n",
    "longrein_pytest/__init__.py": "",
    "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '--collect-only'\n",
}


@pytest.mark.parametrize("solution", ATTACKS.values(), ids=ATTACKS)
def test_no_attack_gets_a_point(check: Check, solution: str) -> None:
    verdict = check(TESTS, solution)
    assert (verdict.status, verdict.score) == ("failed", 0.0), verdict
    assert len(verdict.cases) >= 2


def test_planted_files_change_nothing(check: Check) -> None:
    assert check(TESTS, "def f(n): return 0", files=PLANTED).score == 0.0
    assert check(TESTS, "def f(n): return n + 16", files=PLANTED).status == "passed"


MANY = """
import os, time
def f(n):
    for _ in range(60):
        if os.fork() == 0:
            time.sleep(600)
    time.sleep(600)
"""


LONGER = pytest.mark.more


@pytest.mark.parametrize(
    ("solution", "status"),
    [
        pytest.param("import time\ndef f(n): time.sleep(600)", "timeout", id="sleeps"),
        pytest.param(MANY, "runtime_error", id="processes"),
        pytest.param("def f(n): return iter(int, 1)", "wrong_answer", id="endless iterator", marks=LONGER),
        pytest.param("def f(n):\n    x = []\n    while True: x.append(bytes(1 << 20))", "runtime_error", id="memory", marks=LONGER),
        pytest.param("def f(n): return 'x' * (100 << 20)", "runtime_error", id="too long an answer", marks=LONGER),
    ],
)
def test_limits_hold(check: Check, solution: str, status: str) -> None:
    verdict = check(TESTS, solution, timeout_s=15, memory_mb=300, max_processes=32)
    assert (verdict.score, verdict.cases[0].status) == (0.0, status), verdict
