"""How opencode is installed, launched and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import field, frozen, validators

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, McpServer, Session
from longrein.model import Action, ActionKind, SessionResult, Trajectory, Turn, TurnLabel
from longrein.reading import aside, tool_actions
from longrein.toolchain.spec import ToolchainSpec

KINDS: Mapping[str, ActionKind] = {
    "bash": "run",
    "write": "edit",
    "edit": "edit",
    "patch": "edit",
    "apply_patch": "edit",
    "multiedit": "edit",
    "read": "read",
    "list": "read",
    "glob": "search",
    "grep": "search",
}
ASIDES = {
    "You are a title generator.": "opencode's title call",
    "Summarize what was done in this conversation.": "opencode's session summary",
    "You are a context summarization agent.": "opencode's compaction summary",
}
"""How the system prompts of opencode's own small agents begin."""
MCP_TIMEOUT_MS = 600_000
"""The engine bounds the calls of an environment itself."""
DENIED = ("question", "webfetch", "websearch", "codesearch")
"""Nobody is there to answer, and there is no network."""


@frozen
class OpencodeOptions:
    """[agents.opencode]"""

    title: bool = True
    """Give the session a title, which spares a model call before the agent's first."""
    context: int | None = field(default=None, validator=validators.optional(validators.gt(0)))
    """Tokens after which opencode compacts its history; None takes the policy's length."""
    output: int = field(default=4096, validator=validators.gt(0))
    """Tokens opencode keeps free for a reply."""


class Opencode(AgentAdapter):
    """The terminal coding agent opencode, headless."""

    name: ClassVar[str] = "opencode"
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="chat", history="rewrites", tools=True, mcp=True)
    toolchain: ClassVar[ToolchainSpec | None] = ToolchainSpec("npm", "opencode-ai", "1.18.33", "opencode")
    Options: ClassVar[type] = OpencodeOptions

    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start opencode with a config of its own."""
        title = ["--title", "task"] if self.options.title else []
        return LaunchPlan(
            argv=[self.program(session), "run", "--format", "json", *title, *_message(session.task.prompt)],
            env={
                "OPENCODE_DISABLE_AUTOUPDATE": "1",
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
                "OPENCODE_DISABLE_CLAUDE_CODE": "1",
                "OPENCODE_DISABLE_SHARE": "1",
                "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
                "OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER": "1",
            },
            files={f"{session.home}/.config/opencode/{name}": text for name, text in self._files(session).items()},
        )

    def _files(self, session: Session) -> dict[str, str]:
        """Return opencode's config folder. It would fetch a package of plugins' types into it, if they did not seem to be there."""
        lock = json.dumps({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}})
        return {"opencode.json": json.dumps(self._config(session), indent=1), "package-lock.json": lock, "node_modules/.keep": ""}

    def _config(self, session: Session) -> dict[str, Any]:
        context = self.options.context or session.max_model_len or 128_000
        model = f"longrein/{session.model}"
        return {
            "$schema": "https://opencode.ai/config.json",
            "model": model,
            "small_model": model,
            "enabled_providers": ["longrein"],
            "provider": {
                "longrein": {
                    "npm": "@ai-sdk/openai-compatible",
                    "name": "longrein",
                    "options": {"baseURL": f"{session.base_url}/v1", "apiKey": session.api_key},
                    "models": {
                        session.model: {
                            "name": session.model,
                            "tool_call": True,
                            "limit": {"context": context, "output": min(self.options.output, context // 2)},
                        }
                    },
                }
            },
            **({"mcp": {"env": _mcp(session.mcp)}} if session.mcp else {}),
            "permission": {"*": "allow", **dict.fromkeys(DENIED, "deny")},
            "autoupdate": False,
            "share": "disabled",
            "snapshot": False,
            "lsp": False,
            "formatter": False,
        }

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        """Return aux for the calls opencode makes for itself: they are known by their system prompt."""
        return aside(turn, trajectory, system=ASIDES)

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the tool calls of the replies, in order."""
        return tool_actions(result, KINDS)


def _mcp(server: McpServer) -> dict[str, Any]:
    """Return the entry of a server; its tools get the entry's name and a _ in front."""
    return {"type": "local", "command": list(server.argv), "environment": dict(server.env), "timeout": MCP_TIMEOUT_MS}


def _message(prompt: str) -> list[str]:
    """Return the arguments that make opencode send exactly `prompt`.

    It puts an argument with a space in quotes, escapes quotes within, and joins arguments with spaces: hence one for each word. As
    positionals, words like 5 would become numbers and end it; as options, words in quotes lose one pair.
    """
    words = (f'"{word}"' if word and word[0] == word[-1] and word[0] in "\"'" else word for word in prompt.split(" "))
    return [f"--message={word}" for word in words]
