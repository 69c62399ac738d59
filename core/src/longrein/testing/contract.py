"""The base of the conformance kit: a contract is a class of checks that pytest collects and `longrein check` runs."""

from __future__ import annotations

import unittest
from collections.abc import Callable, Iterator
from typing import Any, Literal, NoReturn

from attrs import frozen

from longrein.plugins.guard import describe

State = Literal["held", "failed", "not applicable"]


class NotApplicable(unittest.SkipTest):
    """A check that has nothing to look at here; the text is the reason. pytest shows it as a skip."""


@frozen
class CheckResult:
    """One line of the table that `longrein check` prints."""

    check: str
    """The method's name without `test_`."""
    says: str
    """What the check holds to, in a sentence."""
    state: State
    reason: str = ""


class Contract:
    """Subclass a contract as `class TestMine(...)` and pytest runs its checks: methods `test_*`, each with a line that says what holds.

    Nothing here needs pytest.
    """

    @classmethod
    def checks(cls) -> list[str]:
        """Return the names of the checks, in the order in which they are written."""
        order = [name for base in reversed(cls.__mro__) for name in vars(base) if name.startswith("test_")]
        return [name for name in dict.fromkeys(order) if callable(getattr(cls, name))]

    @classmethod
    def prepare(cls) -> None:
        """Do beforehand, and at once where it can be, what the checks look at; without it each check does its own part."""

    @classmethod
    def results(cls) -> Iterator[CheckResult]:
        """Run every check and yield its result."""
        cls.prepare()
        for name in cls.checks():
            check: Callable[..., Any] = getattr(cls, name)
            says = (check.__doc__ or name).strip().partition("\n")[0]
            state: State = "held"
            reason = ""
            try:
                check(cls())
            except NotApplicable as why:
                state, reason = "not applicable", str(why)
            except AssertionError as failure:
                state, reason = "failed", str(failure)
            except Exception as error:  # the code under test is a plugin
                state, reason = "failed", describe(error)
            yield CheckResult(name.removeprefix("test_"), says, state, reason)


def require(held: object, message: str) -> None:
    """Fail a check with `message` unless `held`."""
    if not held:
        raise AssertionError(message)


def not_applicable(reason: str) -> NoReturn:
    """End a check that has nothing to look at."""
    raise NotApplicable(reason)
