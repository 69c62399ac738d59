"""How Qwen Code is installed, launched and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import field, frozen, validators

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Action, ActionKind, SessionResult, Trajectory, Turn, TurnLabel
from longrein.reading import aside, tool_actions
from longrein.toolchain.spec import ToolchainSpec

KINDS: Mapping[str, ActionKind] = {
    "run_shell_command": "run",
    "write_file": "edit",
    "edit": "edit",
    "notebook_edit": "edit",
    "read_file": "read",
    "read_many_files": "read",
    "list_directory": "read",
    "glob": "search",
    "grep_search": "search",
}
ASIDES = {
    "You are the component that summarizes internal chat history": "Qwen Code's compaction summary",
    "You are a specialized context summarizer": "Qwen Code's project summary",
    "Generate a concise, sentence-case title": "Qwen Code's title call",
    "You generate session recaps": "Qwen Code's recap",
    "Write a short summary label describing what these tool calls": "Qwen Code's label for tool calls",
    "You are selecting memories": "Qwen Code's choice of memories",
}
"""How lines of the system prompts of Qwen Code's side calls begin."""
DENIED = (
    "ask_user_question",
    "exit_plan_mode",
    "monitor",
    "save_memory",
    "send_message",
    "skill",
    "task_stop",
    "tool_search",
    "web_fetch",
    "web_search",
)
"""Nobody is there to answer, there is no network, and no later session."""


@frozen
class QwenCodeOptions:
    """[agents.qwen-code]"""

    context: int | None = field(default=None, validator=validators.optional(validators.gt(0)))
    """Tokens of the model's window; Qwen Code compacts its history when 70 % are used. None takes the policy's length."""


class QwenCode(AgentAdapter):
    """The terminal coding agent Qwen Code, headless."""

    name: ClassVar[str] = "qwen-code"
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="chat", history="rewrites", tools=True)
    toolchain: ClassVar[ToolchainSpec | None] = ToolchainSpec("npm", "@qwen-code/qwen-code", "0.15.10", "qwen")
    Options: ClassVar[type] = QwenCodeOptions

    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start Qwen Code for one prompt with settings of its own."""
        return LaunchPlan(
            argv=[self.program(session), "--yolo", "--auth-type=openai", "--output-format=stream-json", f"--prompt={session.task.prompt}"],
            env={
                "OPENAI_BASE_URL": f"{session.base_url}/v1",
                "OPENAI_API_KEY": session.api_key,
                "OPENAI_MODEL": session.model,
                "QWEN_CODE_NO_RELAUNCH": "true",  # it would start itself again for a larger heap, which costs 1 CPU second
            },
            files={f"{session.home}/.qwen/settings.json": json.dumps(self._settings(session), indent=1)},
        )

    def _settings(self, session: Session) -> dict[str, Any]:
        return {
            "general": {"enableAutoUpdate": False, "chatRecording": False},
            "privacy": {"usageStatisticsEnabled": False},
            "telemetry": {"enabled": False},
            "memory": {"enableManagedAutoMemory": False},
            "permissions": {"deny": DENIED},
            "tools": {"shell": {"enableInteractiveShell": False}},
            "disableAllHooks": True,
            "model": {
                "generationConfig": {"maxRetries": 2, "contextWindowSize": self.options.context or session.max_model_len or 128_000},
            },
        }

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        """Return aux for the calls Qwen Code makes for itself: they are known by their system prompt."""
        return aside(turn, trajectory, system=ASIDES)

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the tool calls of the replies, in order."""
        return tool_actions(result, KINDS)
