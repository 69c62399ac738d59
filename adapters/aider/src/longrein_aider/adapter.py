"""How Aider is installed, launched and read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

from attrs import frozen

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Action, SessionResult, Trajectory, Turn, TurnLabel
from longrein.toolchain.spec import ToolchainSpec

FLAGS = (
    "--yes-always", "--no-check-update", "--analytics-disable", "--no-show-model-warnings", "--no-show-release-notes", "--map-tokens", "0",
    "--no-stream", "--no-pretty", "--no-fancy-input", "--no-detect-urls", "--no-suggest-shell-commands",
)
ASIDES = {
    "You are an expert software engineer that generates concise": "Aider's commit message",
    "*Briefly* summarize this partial conversation": "Aider's history summary",
}
"""How the system prompts of Aider's side calls begin."""


@frozen
class AiderOptions:
    """[agents.aider]"""

    edit_format: Literal["whole", "diff", "udiff", "diff-fenced"] = "whole"
    auto_test: bool = True
    """Run the task's public examples after each edit; a failure is shown to the model."""
    git: bool = False
    """Work in a git repository with auto-commits; each costs a model call for its message."""


class Aider(AgentAdapter):
    """The pair programmer Aider, headless: no native tools, edits are parsed from replies."""

    name: ClassVar[str] = "aider"
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="chat", history="rewrites", tools=False)
    toolchain: ClassVar[ToolchainSpec | None] = ToolchainSpec("venv", "aider-chat", "0.86.2", "aider")
    Options: ClassVar[type] = AiderOptions

    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start Aider for one message."""
        program = str(session.toolchain.program) if session.toolchain else "aider"
        model = f"openai/{session.model}"
        test = ["--auto-test", "--test-cmd", session.check_command] if self.options.auto_test and session.check_command else []
        return LaunchPlan(
            argv=[program, "--model", model, "--weak-model", model, "--edit-format", self.options.edit_format, *FLAGS,
                  "--git" if self.options.git else "--no-git", *test, "--message", session.task.prompt, "solution.py"],
            env={
                "OPENAI_API_BASE": f"{session.base_url}/v1", "OPENAI_API_KEY": session.api_key,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_COLOR": "1",
            },
            files={"solution.py": ""},
        )

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        """Return aux for commit messages and history summaries; they are known by their system prompt."""
        system = next((str(message.get("content")) for message in trajectory.messages(turn.call.id) if message["role"] == "system"), "")
        return next((TurnLabel("aux", reason) for start, reason in ASIDES.items() if system.startswith(start)), None)

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the edits that were applied and the test runs, in order, from what Aider printed."""
        found = []
        for line in result.stdout.splitlines():
            if edit := re.match(r"Applied edit to (.+)", line):
                found.append(Action("edit", "edit", edit[1][:200]))
        return found
