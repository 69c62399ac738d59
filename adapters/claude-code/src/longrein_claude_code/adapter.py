"""How Claude Code is installed, launched and read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

from attrs import field, frozen, validators

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Action, ActionKind, SessionResult, Trajectory, Turn, TurnLabel
from longrein.reading import aside, tool_actions
from longrein.toolchain.spec import ToolchainSpec

KINDS: Mapping[str, ActionKind | Literal["shell"]] = {
    "Bash": "shell",
    "Edit": "edit",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "Write": "edit",
    "Read": "read",
    "LS": "read",
    "Glob": "search",
    "Grep": "search",
}
ASIDES = {
    "You are a helpful AI assistant tasked with summarizing conversations.": "Claude Code's compaction summary",
    "Generate a concise, sentence-case title": "Claude Code's title call",
    "Your task is to process Bash commands": "Claude Code's check of a command",
    "Your task is to determine the command prefix": "Claude Code's check of a command",
}
"""How lines of the system prompts of Claude Code's side calls begin."""
REQUESTS = {"CRITICAL: Respond with TEXT ONLY.": "Claude Code's compaction summary"}
FLAGS = (
    "--print",
    "--output-format=stream-json",
    "--verbose",
    "--dangerously-skip-permissions",
    "--no-session-persistence",
    "--disable-slash-commands",
    "--strict-mcp-config",
    "--setting-sources=",
)
ENV = {
    "IS_SANDBOX": "1",  # else it refuses to skip permissions where the sandbox leaves it root
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
    "CLAUDE_CODE_DISABLE_THINKING": "1",  # else every request would switch the policy's thinking on
    "CLAUDE_CODE_MAX_RETRIES": "2",
}


@frozen
class ClaudeCodeOptions:
    """[agents.claude-code]"""

    tools: str = "Agent,Bash,Edit,Glob,Grep,Read,Write"
    """Built-in tools to offer, "default" for all; the others need a person, a service or a later day."""
    context: int | None = field(default=None, validator=validators.optional(validators.gt(0)))
    """Tokens of the model's window, near which it compacts its history; None takes the policy's length."""


class ClaudeCode(AgentAdapter):
    """Anthropic's terminal coding agent Claude Code, headless."""

    name: ClassVar[str] = "claude-code"
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="messages", history="rewrites", tools=True)
    toolchain: ClassVar[ToolchainSpec | None] = ToolchainSpec("npm", "@anthropic-ai/claude-code", "2.1.197", "claude")
    contract: ClassVar[str | None] = "longrein_claude_code.contract:ClaudeCodeContract"
    Options: ClassVar[type] = ClaudeCodeOptions

    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start Claude Code for one prompt, with nothing read from settings or the workspace."""
        context = self.options.context or session.max_model_len or 200_000
        return LaunchPlan(
            argv=[self.program(session), *FLAGS, f"--tools={self.options.tools}", "--", session.task.prompt],
            env={
                **ENV,
                "ANTHROPIC_BASE_URL": session.base_url,
                "ANTHROPIC_API_KEY": session.api_key,
                "ANTHROPIC_MODEL": session.model,
                "ANTHROPIC_SMALL_FAST_MODEL": session.model,
                "CLAUDE_CODE_MAX_CONTEXT_TOKENS": str(context),
                "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(context),
                "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(min(32_000, context // 4)),
            },
        )

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        """Return aux for the calls Claude Code makes for itself: they are known by what they ask."""
        return aside(turn, trajectory, system=ASIDES, request=REQUESTS)

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the tool calls of the replies, in order."""
        return tool_actions(result, KINDS)
