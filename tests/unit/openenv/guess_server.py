"""An OpenEnv environment with openenv's own server code: guess the number that the seed hides. Environment variables spoil it."""

from __future__ import annotations

import itertools
import os
from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_fastapi_app
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Observation, State

SPOILT = os.environ.get("GUESS_SPOILT", "")
RESETS = itertools.count(1)


class Start(Observation):
    """What is seen first."""

    text: str


class GuessState(State):
    """What only the server knows; the reward comes here when it comes late."""

    secret: int = 0
    reward: float | None = None
    asked: int = 0


class Guess(MCPEnvironment):
    """Three numbers, one guess."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("guess")

        @server.tool
        def guess(number: int) -> str:
            """Guess the number."""
            if number > 2:
                raise ValueError("the number is below 3")
            if SPOILT == "dies":
                os._exit(3)
            self._right = number == self._state.secret
            return "right" if self._right else "wrong"

        super().__init__(server)
        self._state, self._right = GuessState(), False

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Observation:
        """Hide a number."""
        self._state, self._right = GuessState(secret=(seed or 0) % 3), False
        count = f" Reset {next(RESETS)}." if SPOILT == "unclean" else ""
        return Start(text=f"Numbers 0 to 2; hint {seed}.{count}", metadata={"secret": f"secret-{self._state.secret}"})

    async def step_async(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        """Call the tool; a guess ends the episode."""
        seen = await super().step_async(action, timeout_s, **kwargs)
        if (
            isinstance(action, CallToolAction)
            and isinstance(seen, CallToolObservation)
            and not getattr(seen.result, "is_error", seen.error)
        ):
            seen.reward, seen.done = (None if SPOILT == "late" else float(self._right)), True
        return seen

    def _step_impl(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> GuessState:
        """The state; a late reward is there from the third look on."""
        self._state.asked += 1
        if SPOILT == "late" and self._state.asked > 2:
            self._state.reward = 0.5
        return self._state


app = create_fastapi_app(Guess, CallToolAction, CallToolObservation, max_concurrent_envs=8)
