"""What an environment is: the world of one session, kept by the engine. Its tools act in it, and it says how the session went."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from longrein.model import Verdict


@frozen
class Tool:
    """A tool of an environment, as the agent may see it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON schema of its arguments, an object."""


class ToolError(Exception):
    """A call that the environment refuses or that failed in it: the text is the model's answer, and the session goes on."""


class Environment(ABC):
    """The world of one session. Nothing of it but tools, observations and results ever reaches the agent."""

    tools: Sequence[Tool] = ()
    observation: str = ""
    """What the agent sees first; it is put right behind the task's prompt."""

    @abstractmethod
    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Return the result of one tool call; the engine makes one call at a time, only of `tools`.

        Raises:
            ToolError: the model is told why there is no result.
            Exception: anything else ends the session, which is then unscorable.
        """

    @abstractmethod
    async def verdict(self) -> Verdict:
        """Return the verdict once every process of the session is dead; it may take its time.

        Raises:
            Exception: there is none; the session is then unscorable.
        """
