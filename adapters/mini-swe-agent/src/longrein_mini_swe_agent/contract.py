"""How a scripted policy speaks to mini-swe-agent: it ends by a command of its own."""

from __future__ import annotations

from typing import ClassVar

from longrein.agent import AgentAdapter
from longrein.testing import AdapterContract
from longrein.testing.moves import Asked
from longrein.testing.scripted import Reply
from longrein_mini_swe_agent.adapter import MiniSweAgent


class MiniSweAgentContract(AdapterContract):
    """A reply without a command is a format error; this one ends the session."""

    adapter: ClassVar[type[AgentAdapter]] = MiniSweAgent
    patience_s: ClassVar[float] = 20.0
    """Shorter than the 30 s after which mini-swe-agent itself ends a command."""

    def finish(self, asked: Asked) -> Reply | None:
        """Return the command that submits."""
        return self.run(asked, "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")
