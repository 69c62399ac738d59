"""The verifier "pytest" on honest programs: what tests commonly do works although the code is in another process."""

from __future__ import annotations

import pytest
from tests.unit.graders.conftest import Check

from longrein.model import Verdict

ADD = """
from solution import add

def test_small():
    assert add(1, 2) == 3

def test_large():
    assert add(10**40, 1) == 10**40 + 1
"""

WIDE_TESTS = """
import io, sys
import pytest
import solution
from solution import Account, Color, Point, Poor, bump, counts, evens, lines, main
from pkg.deep import value

@pytest.mark.parametrize(("given", "wanted"), [("aab", {"a": 2, "b": 1}), ("", {})])
def test_plain_data(given, wanted):
    assert counts(given) == wanted

def test_iterators_and_containers():
    assert list(evens(7)) == [0, 2, 4, 6]
    assert lines() == (1, [2.5, None], {3}, b"x", "é")

class TestObjects:
    def test_state_operators_and_attributes(self):
        account = Account(5)
        account.deposit(3)
        assert account.balance == 8
        assert len(account) == 8
        assert 8 in account
        assert isinstance(account, Account)
        assert account != 8
        account.owner = "me"
        assert account.owner == "me"
        assert repr(account) == "<Account 8>"

    def test_values_of_its_own(self):
        assert Point(1, 2) == Point(1, 2)
        assert Point(1, 2) != Point(1, 3)
        assert Color.RED is solution.Color.RED
        assert solution.pair().x == 1

    def test_exceptions(self):
        with pytest.raises(Poor, match="only 5") as caught:
            Account(5).pay(9)
        assert caught.value.missing == 4
        with pytest.raises(ValueError):
            Account(-1)
        with pytest.raises(KeyError):
            {}[counts]
        with pytest.raises(SystemExit):
            solution.leave()

def test_streams(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("3\\n4\\n"))
    main()
    assert capsys.readouterr().out == "7\\n"

def test_as_a_program(program):
    done = program("solution.py", stdin="1\\n2\\n")
    assert (done.returncode, done.stdout) == (0, "3\\n")

def test_module_state_and_packages(monkeypatch):
    monkeypatch.setattr(solution, "STEP", 10)
    assert bump(1) == 11
    assert value() == "deep"
"""
WIDE = """
from collections import Counter, namedtuple
from dataclasses import dataclass
from enum import Enum
import sys

STEP = 1
Color = Enum("Color", "RED BLUE")

@dataclass
class Point:
    x: int
    y: int

class Poor(Exception):
    def __init__(self, has, missing):
        super().__init__(f"only {has}")
        self.missing = missing

class Account:
    def __init__(self, balance):
        if balance < 0:
            raise ValueError(balance)
        self.balance = balance
    def deposit(self, n): self.balance += n
    def pay(self, n): raise Poor(self.balance, n - self.balance)
    def __len__(self): return self.balance
    def __contains__(self, n): return n == self.balance
    def __repr__(self): return f"<Account {self.balance}>"

def counts(text): return Counter(text)
def evens(n): yield from range(0, n, 2)
def lines(): return (1, [2.5, None], {3}, b"x", "é")
def pair(): return namedtuple("Pair", "x y")(1, 2)
def bump(n): return n + STEP
def leave(): sys.exit(2)
def main(): print(int(input()) + int(input()))

if __name__ == "__main__":
    main()
"""


def failures(verdict: Verdict) -> list[tuple[str, str]]:
    return [(case.status, case.detail) for case in verdict.cases if case.status != "passed"]


def test_a_result_for_each_test(check: Check) -> None:
    right = check(ADD, "def add(a, b): return a + b")
    assert (right.status, right.score, right.details["isolation"]) == ("passed", 1.0, "bwrap")
    assert [(case.status, case.detail) for case in right.cases] == [
        ("passed", "test_it.py::test_small"),
        ("passed", "test_it.py::test_large"),
    ]
    half = check(ADD, "def add(a, b): return a + b if a < 9 else 0")
    assert (half.status, half.score) == ("failed", 0.5)
    assert failures(half) == [("wrong_answer", "test_it.py::test_large: AssertionError")]
    assert "10 ** 40" in half.cases[1].expected
    assert "10 ** 40" not in half.reason + half.cases[1].detail, "what was expected stays out of the record"


def test_what_tests_commonly_do_works(check: Check) -> None:
    verdict = check(WIDE_TESTS, WIDE, files={"pkg/__init__.py": "", "pkg/deep.py": "def value(): return 'deep'"})
    assert (failures(verdict), verdict.status, len(verdict.cases)) == ([], "passed", 9)


@pytest.mark.parametrize(
    ("solution", "status", "detail"),
    [
        (None, "runtime_error", "not reported; ModuleNotFoundError No module named 'solution'"),
        ("def add(a, b: return", "runtime_error", "not reported; SyntaxError"),
        ("def sub(a, b): return 0", "runtime_error", "not reported; ImportError"),
        ("def add(a): return a", "runtime_error", "test_small: TypeError add() takes 1 positional argument"),
        ("def add(a, b): raise OSError('full')", "runtime_error", "test_small: OSError full"),
        ("def add(a, b): return str(a + b)", "wrong_answer", "test_small: AssertionError"),
    ],
)
def test_wrong_programs_fail_with_the_reason(check: Check, solution: str | None, status: str, detail: str) -> None:
    verdict = check(ADD, solution)
    assert (verdict.status, verdict.score) == ("failed", 0.0)
    assert verdict.cases[0].status == status
    assert detail in verdict.cases[0].detail


def test_skipped_and_expected_failures_are_not_passes(check: Check) -> None:
    tests = """
    import pytest
    from solution import f
    def test_skips(): pytest.skip("not here")
    @pytest.mark.xfail
    def test_xfails(): assert f() == 2
    @pytest.mark.xfail
    def test_xpasses(): assert f() == 1
    """
    verdict = check(tests, "def f(): return 1")
    assert (verdict.score, [case.status for case in verdict.cases]) == (0.0, ["runtime_error"] * 3)


@pytest.mark.parametrize(
    ("tests", "reason"),
    [("def test_x(:", "not Python: SyntaxError"), ("x = 1", "no hidden tests"), ("def test_x(): pass", "pytest did not start")],
)
def test_trouble_of_the_grader_is_unscorable(check: Check, tests: str, reason: str) -> None:
    verdict = check(tests, "", hidden={"pytest.ini": "[pytest]\naddopts = --no-such-option\n"})
    assert (verdict.status, verdict.score) == ("unscorable", None)
    assert reason in verdict.reason


def test_hidden_helpers_and_conftest_are_found(check: Check) -> None:
    tests = "from helper import wanted\nfrom solution import f\n\ndef test_it(base):\n    assert f(base) == wanted\n"
    hidden = {"helper.py": "wanted = 6", "conftest.py": "import pytest\n@pytest.fixture\ndef base(): return 3\n"}
    assert check(tests, "def f(n): return 2 * n", hidden=hidden).status == "passed"
