"""An episode in an environment class as TRL's trainers take it: its public methods are the tools."""

from __future__ import annotations

import asyncio
import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from websockets.exceptions import ConnectionClosed

from longrein.environment import Tool, ToolError
from longrein.errors import ConfigError, EnvironmentFailed, UnknownNameError
from longrein.model import Verdict
from longrein.plugins.discover import run_file
from longrein.rollout.policy import need_extra
from longrein_openenv.episode import Episode, verdict_of
from longrein_openenv.options import OpenEnvOptions

OWN = ("reset", "get_reward")
"""What of a class is no tool, besides names that begin with _."""
LOST = (ConnectionError, ConnectionClosed, httpx.TransportError)
"""What a client inside a class raises when its server has gone."""


def load(target: str) -> Callable[[], Any]:
    """Return the class or function that "package.module:Class" or "path/to/file.py:Class" names.

    Raises:
        ConfigError: there is none.
    """
    where, _, name = target.rpartition(":")
    try:
        module = run_file(Path(where).expanduser().resolve(), "environment") if where.endswith(".py") else importlib.import_module(where)
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(f"environment_factory {target!r}: cannot import {where!r}: {error}") from error
    if not callable(found := getattr(module, name, None)):
        raise UnknownNameError(f"class in {where}", name, [name for name, _ in inspect.getmembers(module, inspect.isclass)])
    factory: Callable[[], Any] = found
    return factory


class MethodEpisode(Episode):
    """One instance of such a class. It is made once and reset often, as TRL does it."""

    def __init__(self, instance: Any, options: OpenEnvOptions) -> None:
        self._instance, self._options = instance, options
        self.tools = _tools(instance)

    async def reset(self, row: Mapping[str, Any]) -> str:
        """Begin the episode of a row of the data set, which `reset` gets whole."""
        observation = await self._within(self._instance.reset, row, "reset")
        return "" if observation is None else _text(observation)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Call a method."""
        try:
            return _text(await self._within(getattr(self._instance, name), arguments, f"tool {name!r}"))
        except LOST as error:
            self.sound = False
            raise EnvironmentFailed(f"tool {name!r} lost its connection: {error}") from error
        except EnvironmentFailed:
            raise
        except Exception as error:
            raise ToolError(f"{type(error).__name__}: {error}") from error

    async def verdict(self) -> Verdict:
        """Return what `get_reward`, or the attribute `reward`, says."""
        self.must_be_sound()
        if hasattr(self._instance, "get_reward"):
            reward = await self._within(self._instance.get_reward, {}, "get_reward", self._options.verdict_timeout_s)
        else:
            reward = self._instance.reward
        return verdict_of(reward, self._options.reward_range)

    async def _within(self, method: Callable[..., Any], arguments: Mapping[str, Any], what: str, limit_s: float | None = None) -> Any:
        limit_s = limit_s or self._options.call_timeout_s
        work = method(**arguments) if inspect.iscoroutinefunction(method) else asyncio.to_thread(method, **arguments)
        whole, self.sound = self.sound, False  # until it is through; a method's thread cannot be ended
        try:
            async with asyncio.timeout(limit_s) as limit:
                result = await work
        except TimeoutError as error:
            if limit.expired():
                raise EnvironmentFailed(f"{what} did not return within {limit_s:g} s") from error
            raise EnvironmentFailed(f"{what} met a time limit of its own: {error}") from error
        except Exception:
            self.sound = whole
            raise
        self.sound = whole
        return result


def _tools(instance: Any) -> tuple[Tool, ...]:
    """Return the public methods as tools; they need type hints and Google-style docstrings, as TRL asks for.

    Raises:
        ConfigError: the class cannot be used.
    """
    need_extra("train", "transformers")
    from transformers.utils import get_json_schema

    kind = type(instance).__name__
    names = [name for name, _ in inspect.getmembers(type(instance), inspect.isfunction) if not name.startswith("_")]
    if "reset" not in names:
        raise ConfigError(f"environment class {kind} has no method reset")
    if "reward" in names:
        raise ConfigError(f"environment class {kind} has a method reward, which would be a tool of the agent; name it get_reward")
    tools = []
    for name in names:
        if name not in OWN:
            try:
                schema = get_json_schema(getattr(instance, name))["function"]
            except Exception as error:
                raise ConfigError(f"method {name} of environment class {kind} cannot be a tool: {error}") from error
            tools.append(Tool(name, schema.get("description", ""), schema.get("parameters") or {"type": "object", "properties": {}}))
    if not tools:
        raise ConfigError(f"environment class {kind} has no public method besides {' and '.join(OWN)}, so there is no tool")
    return tuple(tools)


def _text(value: Any) -> str:
    if isinstance(value, list):  # blocks of content; images are not carried
        return "\n".join(part.get("text", "") for part in value if isinstance(part, dict))
    return str(value)
