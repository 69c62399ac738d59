"""The base of the conformance kit: a contract is a class of checks that pytest collects and `longrein check` runs."""

from __future__ import annotations

import logging
import unittest
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar, Literal, NoReturn

from attrs import frozen

from longrein.errors import PluginError
from longrein.plugins.guard import ESCAPES, describe

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

    options: ClassVar[Mapping[str, Any]] = {}
    """Options of the class under test, as in its config section."""

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


def contract_of(kind: str, cls: Any, options: Mapping[str, Any]) -> type[Contract]:
    """Return the contract of a registered class: the one that its `contract` attribute names, else the kit's for its kind.

    Args:
        kind: adapter, verifier or sandbox.
        cls: the class to try.
        options: as in its config section, over those that the contract gives.

    Raises:
        PluginError: the attribute names no contract.
    """
    from longrein import testing

    base: type[Contract] = getattr(testing, f"{kind.title()}Contract")
    named = getattr(cls, "contract", None)
    if named is None:
        return type(f"{cls.__name__}Contract", (base,), {kind: cls, "options": options})
    try:
        module, _, name = named.partition(":")
        found = getattr(import_module(module), name)
    except ESCAPES as error:
        raise PluginError(f"{kind} {cls.name!r} names the contract {named!r}, which cannot be loaded: {describe(error)}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise PluginError(f"{kind} {cls.name!r} names the contract {named!r}, which is no {base.__name__}")
    return type(found.__name__, (found,), {"options": {**found.options, **options}})


@contextmanager
def quiet() -> Iterator[None]:
    """Keep the log lines of what is made to fail on purpose off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
