"""A Python function as an agent: `async def my_agent(client, task)`, attached by its import path or a decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from longrein.errors import ConfigError
from longrein.function.adapter import FunctionAgent

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["FunctionAgent", "agent"]


def agent(function: F) -> F:
    """Mark a function as an agent: its attribute `options` is the section `[agents.function]` that runs it.

    `from_mapping({"agents": {"function": my_agent.options}, ...})` attaches it. The function stays what it is. It must be
    found again by another process: a module's own function, of two arguments.

    Raises:
        ConfigError: it is a method, a lambda or an inner function, or takes other than two arguments.
    """
    source = inspect.getsourcefile(function)
    if not source or not function.__qualname__.isidentifier():
        raise ConfigError(f"{function!r} cannot be an agent: another process must find it, so define it with `def` in a module")
    if len(inspect.signature(function).parameters) != 2:
        raise ConfigError(f"{function.__qualname__} takes {inspect.signature(function)}; an agent takes (client, task)")
    function.options = {"target": f"{Path(source).resolve()}:{function.__qualname__}"}  # type: ignore[attr-defined]
    return function
