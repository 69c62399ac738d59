"""mini-swe-agent for longrein."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longrein import hookimpl

if TYPE_CHECKING:
    from longrein.agent import AgentAdapter


@hookimpl
def longrein_agents() -> Sequence[type[AgentAdapter]]:
    """Register mini-swe-agent."""
    from longrein_mini_swe_agent.adapter import MiniSweAgent

    return [MiniSweAgent]
