"""How a scripted policy speaks to Claude Code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from longrein.agent import AgentAdapter
from longrein.testing import AdapterContract
from longrein.testing.moves import Asked
from longrein.testing.scripted import Reply
from longrein_claude_code.adapter import ClaudeCode


class ClaudeCodeContract(AdapterContract):
    """Its Write tool makes a character of `\\uXXXX` in a text, so such a text goes through its shell."""

    adapter: ClassVar[type[AgentAdapter]] = ClaudeCode

    def write(self, asked: Asked, files: Mapping[str, str]) -> Reply | None:
        """Return calls of Write, or a shell command for a file whose text holds an escape."""
        if not any("\\u" in text for text in files.values()):
            return super().write(asked, files)
        steps = [f"cat > {name} <<'END_OF_FILE'\n{text}END_OF_FILE" for name, text in files.items()]
        return self.run(asked, "\n".join(steps))
