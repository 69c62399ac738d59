"""Calls into code that is not ours: whatever escapes becomes a finding that names where it came from."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from longrein.model import Finding

T = TypeVar("T")
ESCAPES = (Exception, SystemExit)
"""What is caught: a plugin that calls sys.exit() must not end a run."""


class BadAnswer(Exception):
    """A hook's answer that does not fit; the text completes "answered ..."."""


def describe(error: BaseException) -> str:
    """Return an exception as one line with the place it was raised at."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}".replace("\n", " ")


def note(findings: list[Finding], source: str, message: str) -> None:
    """Add a finding once: a hook that fails the same way at 300 turns is one thing to know."""
    finding = Finding(source, message)
    if finding not in findings:
        findings.append(finding)


def ask(call: Callable[[], Any], check: Callable[[Any], T], *, source: str, hook: str, findings: list[Finding]) -> T | None:
    """Return the checked answer of a plain call, or None with a finding when it raised or does not fit."""
    try:
        return check(call())
    except BadAnswer as error:
        note(findings, source, f"{hook} answered {error}")
    except ESCAPES as error:
        note(findings, source, f"{hook} raised {describe(error)}")
    return None


async def ask_async(call: Callable[[], Any], check: Callable[[Any], T], *, source: str, hook: str, findings: list[Finding]) -> T | None:
    """Do what `ask` does for a call that may be a coroutine function; a plain one runs in a thread."""
    answer, error = await asyncio.to_thread(_caught, call)
    if inspect.isawaitable(answer):
        answer, error = await _awaited(answer)

    def result() -> Any:
        if error is not None:
            raise error
        return answer

    return ask(result, check, source=source, hook=hook, findings=findings)


def _caught(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    # Caught inside the thread: a StopIteration cannot be raised into a future, its waiter would wait for ever.
    try:
        return call(), None
    except ESCAPES as error:
        return None, error


async def _awaited(answer: Awaitable[Any]) -> tuple[Any, BaseException | None]:
    try:
        return await answer, None
    except ESCAPES as error:
        return None, error
