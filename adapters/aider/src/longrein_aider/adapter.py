"""How Aider is installed, launched and read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import ClassVar, Literal

from attrs import frozen

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Action, SessionResult, Trajectory, Turn, TurnLabel
from longrein.reading import aside
from longrein.toolchain.spec import ToolchainSpec

FLAGS = (
    "--yes-always",
    "--no-check-update",
    "--analytics-disable",
    "--no-show-model-warnings",
    "--no-show-release-notes",
    "--map-tokens",
    "0",
    "--no-stream",
    "--no-pretty",
    "--no-fancy-input",
    "--no-detect-urls",
    "--no-suggest-shell-commands",
)
BOOT = "import gc, sys; gc.set_threshold(200_000, 50, 100); from aider.main import main; sys.exit(main())"
"""Aider's own entry point with a rarer garbage collection, which costs 0.5 of 3.3 CPU seconds while it imports."""
HISTORY = ".aider.chat.history.md"
"""Aider writes its command line into the first lines of this file."""
PRICES = ".aider/caches/model_prices_and_context_window.json"
"""A price table that is there and young is not fetched."""
ASIDES = {
    "You are an expert software engineer that generates concise": "Aider's commit message",
    "*Briefly* summarize this partial conversation": "Aider's history summary",
}
"""How lines of the system prompts of Aider's side calls begin."""


@frozen
class AiderOptions:
    """[agents.aider]"""

    edit_format: Literal["whole", "diff", "udiff", "diff-fenced"] = "whole"
    auto_test: bool = True
    """Run the task's public examples after each edit; a failure is shown to the model."""
    auto_lint: bool = False
    """Run flake8 after each edit; it costs a process each time, and the test command sees the same errors."""
    git: bool = False
    """Work in a git repository with auto-commits; each costs a model call for its message."""


class Aider(AgentAdapter):
    """The pair programmer Aider, headless: no native tools, edits are parsed from replies."""

    name: ClassVar[str] = "aider"
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="chat", history="rewrites", tools=False)
    toolchain: ClassVar[ToolchainSpec | None] = ToolchainSpec("venv", "aider-chat", "0.86.2", "aider")
    Options: ClassVar[type] = AiderOptions
    contract: ClassVar[str | None] = "longrein_aider.contract:AiderContract"

    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start Aider for one message."""
        python = str(session.toolchain.program.with_name("python")) if session.toolchain else "python3"
        model = f"openai/{session.model}"
        test = ["--auto-test", "--test-cmd", session.check_command] if self.options.auto_test and session.check_command else []
        return LaunchPlan(
            argv=[
                python,
                "-c",
                BOOT,
                "--model",
                model,
                "--weak-model",
                model,
                "--edit-format",
                self.options.edit_format,
                *FLAGS,
                "--git" if self.options.git else "--no-git",
                "--auto-lint" if self.options.auto_lint else "--no-auto-lint",
                *test,
                f"--message={session.task.prompt}",
                "solution.py",
            ],
            env={
                "OPENAI_API_BASE": f"{session.base_url}/v1",
                "OPENAI_API_KEY": session.api_key,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "PYDANTIC_DISABLE_PLUGINS": "true",
                "NO_COLOR": "1",
            },
            files={f"{session.home}/{PRICES}": '{"-": {}}', **({} if "solution.py" in session.task.files else {"solution.py": ""})},
        )

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        """Return aux for commit messages and history summaries; they are known by their system prompt."""
        return aside(turn, trajectory, system=ASIDES)

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the edits that Aider printed as applied, and a run after each batch of them when it was started with auto-test."""
        tests = b" --auto-test " in result.workspace.get(HISTORY, b"")[:8192]
        found: list[Action] = []
        lines = [re.match(r"Applied edit to (.+)", line) or line for line in result.stdout.splitlines()]
        for applied, batch in itertools.groupby(lines, lambda line: isinstance(line, re.Match)):
            if applied:
                found += [Action("edit", "edit", edit[1][:200]) for edit in batch]
            elif found and tests and found[-1].kind == "edit" and not any("Attempt to fix lint errors?" in str(line) for line in batch):
                found.append(Action("run", "test"))
        if found and tests and found[-1].kind == "edit":
            found.append(Action("run", "test"))
        return found
