"""How mini-swe-agent is installed, launched and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Action, SessionResult, Trajectory, Turn, TurnLabel
from longrein.reading import tool_actions
from longrein.toolchain.spec import ToolchainSpec

BOOT = "import gc; gc.set_threshold(200_000, 50, 100); from minisweagent.run.mini import app; app()"
"""mini's own entry point with a rarer garbage collection, which costs CPU time while it imports."""
FORMAT_ERRORS = ("Tool call error:", "Your previous response reached the output token limit")
"""How mini-swe-agent's own messages begin when it could not read a reply; the reply itself is left out of its history."""


class MiniSweAgent(AgentAdapter):
    """The small agent mini-swe-agent: one bash tool, a history that only grows, and an end by a command of its own."""

    name: ClassVar[str] = "mini-swe-agent"
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="chat", history="append_only", tools=True, honours_turn_cap=True)
    toolchain: ClassVar[ToolchainSpec | None] = ToolchainSpec("venv", "mini-swe-agent", "2.4.6", "mini")
    contract: ClassVar[str | None] = "longrein_mini_swe_agent.contract:MiniSweAgentContract"

    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start mini for one task, without confirmations and without a limit on imagined costs."""
        python = str(session.toolchain.program.with_name("python")) if session.toolchain else "python3"
        return LaunchPlan(
            argv=[
                python,
                "-c",
                BOOT,
                "--yolo",
                "--exit-immediately",
                "--cost-limit=0",
                "--config=mini.yaml",
                f"--config=agent.step_limit={session.max_turns or 0}",
                f"--model=openai/{session.model}",
                f"--task={session.task.prompt}",
            ],
            env={
                "OPENAI_API_BASE": f"{session.base_url}/v1",
                "OPENAI_API_KEY": session.api_key,
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
                "MSWEA_CONFIGURED": "true",
                "MSWEA_COST_TRACKING": "ignore_errors",
                "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "3",
                "MSWEA_SILENT_STARTUP": "1",
                "PYDANTIC_DISABLE_PLUGINS": "true",
                "NO_COLOR": "1",
            },
        )

    def classify(self, turn: Turn, trajectory: Trajectory) -> TurnLabel | None:
        """Return train for a reply that was answered with a format error: it is the policy's work, though the history drops it."""
        if turn.label.label != "discarded" or not turn.call.delivered:
            return None
        asked = trajectory.messages(turn.call.id)
        for later in trajectory:
            messages = trajectory.messages(later.call.id)
            said = str(messages[len(asked)].get("content")) if messages[: len(asked)] == asked and len(messages) > len(asked) else ""
            if said.startswith(FORMAT_ERRORS):
                return TurnLabel("train", "agent conversation; mini-swe-agent answered it with a format error")
        return None

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the shell commands of the replies, in order, by what they do."""
        return tool_actions(result, {"bash": "shell"})
