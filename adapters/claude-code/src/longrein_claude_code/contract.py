"""How a scripted policy speaks to Claude Code."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import ClassVar

from longrein.agent import AgentAdapter
from longrein.testing import AdapterContract
from longrein.testing.moves import Asked
from longrein.testing.scripted import Reply
from longrein_claude_code.adapter import ClaudeCode


class ClaudeCodeContract(AdapterContract):
    """Claude Code makes a character of `\\uXXXX` in a tool's arguments, so a text with one goes as base64."""

    adapter: ClassVar[type[AgentAdapter]] = ClaudeCode

    def write(self, asked: Asked, files: Mapping[str, str]) -> Reply | None:
        """Return calls of Write, or a shell command for files whose text holds an escape."""
        if not any("\\u" in text for text in files.values()):
            return super().write(asked, files)
        return self.run(asked, "; ".join(f"echo {b64encode(text.encode()).decode()} | base64 -d > {name}" for name, text in files.items()))
