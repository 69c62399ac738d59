"""How `react` is launched and read; its loop runs inside the sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from attrs import field, frozen, validators

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Action, ActionKind, SessionResult
from longrein.reading import tool_actions

LOOP = Path(__file__).with_name("loop.py")
KINDS: Mapping[str, ActionKind] = {"bash": "run", "write": "edit", "read": "read"}


@frozen
class ReactOptions:
    """[agents.react]"""

    max_turns: int = field(default=30, validator=validators.gt(0))
    """Replies after which it stops."""
    command_timeout_s: float = field(default=60.0, validator=validators.gt(0))
    """A command that runs longer is killed; the model is told."""


class React(AgentAdapter):
    """A plain tool loop with the tools write, read and bash, named and called as opencode's are; in an environment, with its instead."""

    name: ClassVar[str] = "react"
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="chat", history="append_only", tools=True, honours_turn_cap=True, mcp=True)
    Options: ClassVar[type] = ReactOptions

    def launch(self, session: Session) -> LaunchPlan:
        """Start the loop with the interpreter of the sandbox; it stands in the home folder, outside the workspace."""
        place = f"{session.home}/react.py"
        mcp = {"MCP": json.dumps(session.mcp.argv), **session.mcp.env} if session.mcp else {}
        turns = min(self.options.max_turns, session.max_turns or self.options.max_turns)
        return LaunchPlan(
            argv=[str(session.python), place],
            env={
                "OPENAI_BASE_URL": f"{session.base_url}/v1",
                "OPENAI_API_KEY": session.api_key,
                "OPENAI_MODEL": session.model,
                "PROMPT": session.task.prompt,
                "MAX_TURNS": str(turns),
                "COMMAND_TIMEOUT_S": str(self.options.command_timeout_s),
                **mcp,
            },
            files={place: LOOP.read_text(encoding="utf-8")},
        )

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the tool calls of the replies, in order."""
        return tool_actions(result, KINDS)
