"""How a scripted policy speaks to Claude Code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from longrein.agent import AgentAdapter
from longrein.testing import AdapterContract
from longrein.testing.moves import Asked
from longrein.testing.scripted import Reply
from longrein_claude_code.adapter import ClaudeCode

ESCAPE, MARK = "\\u", "@ESCAPE@"


class ClaudeCodeContract(AdapterContract):
    """Claude Code makes a character of `\\uXXXX` in a tool's arguments, so the shell puts such a backslash into the file."""

    adapter: ClassVar[type[AgentAdapter]] = ClaudeCode

    def write(self, asked: Asked, files: Mapping[str, str]) -> Reply | None:
        """Return calls of Write, or shell commands where a text holds an escape."""
        if not any(ESCAPE in text for text in files.values()):
            return super().write(asked, files)
        steps = [
            f"cat > {name} <<'END_OF_FILE'\n{text.replace(ESCAPE, MARK)}END_OF_FILE\nsed -i 's/{MARK}/\\\\u/g' {name}"
            for name, text in files.items()
        ]
        return self.run(asked, "\n".join(steps))
