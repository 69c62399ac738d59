"""How the Codex CLI is installed, launched and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tomli_w
from attrs import field, frozen, validators

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Action, SessionResult, Trajectory, Turn, TurnLabel
from longrein.reading import aside, tool_actions
from longrein.toolchain.spec import ToolchainSpec

OFF = (
    "apps",
    "goals",
    "hooks",
    "image_generation",
    "plugins",
    "shell_snapshot",
    "skill_mcp_dependency_install",
    "tool_suggest",
    "view_image",
)
"""Features that need a service, a person or an image, or that take time at every start."""
COMPACTION = {"You are performing a CONTEXT CHECKPOINT COMPACTION.": "Codex's compaction summary"}


@frozen
class CodexOptions:
    """[agents.codex]"""

    context: int | None = field(default=None, validator=validators.optional(validators.gt(0)))
    """Tokens of the model's window; Codex compacts its history at nine tenths of it. None takes the policy's length."""


class Codex(AgentAdapter):
    """OpenAI's terminal coding agent Codex, headless; it works through a shell alone."""

    name: ClassVar[str] = "codex"
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="responses", history="rewrites", tools=True)
    toolchain: ClassVar[ToolchainSpec | None] = ToolchainSpec("npm", "@openai/codex", "0.171.0", "codex")
    Options: ClassVar[type] = CodexOptions

    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start Codex with a config of its own; longrein's sandbox stands in for its own."""
        return LaunchPlan(
            argv=[self.program(session), "exec", "--json", "--ephemeral", "--skip-git-repo-check", "--", session.task.prompt],
            env={"OPENAI_API_KEY": session.api_key},
            files={f"{session.home}/.codex/config.toml": tomli_w.dumps(self._config(session))},
        )

    def _config(self, session: Session) -> dict[str, Any]:
        return {
            "model": session.model,
            "model_provider": "longrein",
            "model_context_window": self.options.context or session.max_model_len or 128_000,
            "model_reasoning_effort": "none",  # anything else would switch the policy's thinking on
            "approval_policy": "never",
            "sandbox_mode": "danger-full-access",
            "web_search": "disabled",
            "check_for_update_on_startup": False,
            "project_doc_max_bytes": 0,
            "history": {"persistence": "none"},
            "analytics": {"enabled": False},
            "feedback": {"enabled": False},
            "skills": {"include_instructions": False, "bundled": {"enabled": False}},
            "tools": {"experimental_request_user_input": {"enabled": False}},
            "agents": {"enabled": False},
            "features": dict.fromkeys(OFF, False),
            "model_providers": {
                "longrein": {
                    "name": "longrein",
                    "base_url": f"{session.base_url}/v1",
                    "env_key": "OPENAI_API_KEY",
                    "wire_api": "responses",
                    "request_max_retries": 2,
                    "stream_max_retries": 2,
                }
            },
        }

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        """Return aux for compaction, which Codex asks for in the conversation itself."""
        return aside(turn, trajectory, request=COMPACTION)

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the shell commands of the replies, in order, by what they do."""
        return tool_actions(result, {"exec_command": "shell", "shell": "shell", "shell_command": "shell", "apply_patch": "edit"})
