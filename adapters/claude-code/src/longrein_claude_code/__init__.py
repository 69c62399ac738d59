"""Claude Code for longrein."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longrein import hookimpl

if TYPE_CHECKING:
    from longrein.agent import AgentAdapter


@hookimpl
def longrein_agents() -> Sequence[type[AgentAdapter]]:
    """Register Claude Code."""
    from longrein_claude_code.adapter import ClaudeCode

    return [ClaudeCode]
