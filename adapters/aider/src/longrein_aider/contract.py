"""How a scripted policy speaks to Aider: whole files in its edit format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from longrein.agent import AgentAdapter
from longrein.testing import AdapterContract
from longrein.testing.moves import Asked
from longrein.testing.scripted import Reply
from longrein_aider.adapter import ASIDES, Aider


class AiderContract(AdapterContract):
    """Aider has no tools: edits are blocks in a reply, commands are the test command after them."""

    adapter: ClassVar[type[AgentAdapter]] = Aider

    def write(self, asked: Asked, files: Mapping[str, str]) -> Reply:
        """Return whole files."""
        return Reply("\n\n".join(f"{name}\n```\n{text}```" for name, text in files.items()))

    def aside(self, asked: Asked) -> bool:
        """Know side calls by their system prompt."""
        return asked.said("system").startswith(tuple(ASIDES))
