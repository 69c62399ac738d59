"""An episode on an OpenEnv server, over one WebSocket connection: the server keeps an environment for each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import httpx
from openenv.core.generic_client import GenericEnvClient
from websockets.exceptions import ConnectionClosed
from websockets.protocol import State

from longrein.environment import Tool, ToolError
from longrein.errors import EnvironmentFailed
from longrein.model import Verdict
from longrein_openenv.episode import Episode, verdict_of
from longrein_openenv.options import OpenEnvOptions

STEP = "step"
"""Name of the one tool of a server without MCP tools."""
CAPACITY, MODEL_ERRORS = "CAPACITY_REACHED", ("VALIDATION_ERROR", "EXECUTION_ERROR")
CAPACITY_WAIT_S, LOOK_S = 60.0, 1.0
"""How long a session waits for the server to have room, and how often is looked."""
MESSAGE_MB = 16.0


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.code = str(data.get("code"))
        said = [f"{'.'.join(map(str, error.get('loc', ())))}: {error.get('msg')}" for error in data.get("errors") or ()]
        super().__init__("; ".join([str(data.get("message")), *said]))


class Connection(GenericEnvClient):
    """openenv's client, but a lost connection stays lost: a new one would be another environment, which nobody reset."""

    async def _ensure_connected(self) -> None:
        if self._ws is None or self._ws.state is not State.OPEN:
            raise ConnectionError("the connection to the environment server is lost")

    async def request(self, kind: str, data: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send one message and return the data of its answer.

        Raises:
            Refused: the server answered with an error.
            ConnectionError: the connection is lost.
            EnvironmentFailed: there was no answer in time.
        """
        try:
            await self._send({"type": kind} if data is None else {"type": kind, "data": dict(data)})
            answer = await self._receive()
        except ConnectionClosed as error:
            raise ConnectionError(f"the environment server closed the connection: {error}") from error
        except TimeoutError as error:
            raise EnvironmentFailed(f"the environment server did not answer a {kind} within {self._message_timeout:g} s") from error
        if answer.get("type") == "error":
            raise Refused(answer.get("data") or {})
        found: dict[str, Any] = answer.get("data") or {}
        return found


class ServerEpisode(Episode):
    """The episode of one session. Rewards and metadata stay here; agents see the rest of observations."""

    def __init__(self, connection: Connection, tools: tuple[Tool, ...] | None, action: Mapping[str, Any], options: OpenEnvOptions) -> None:
        self._connection, self._options, self._mcp = connection, options, tools is not None
        description = "Take one action in the environment and return what is seen then."
        self.tools = (Tool(STEP, description, action),) if tools is None else tools
        self._rewards: list[Any] = []
        self._n_steps, self._done = 0, False

    @classmethod
    async def open(cls, url: str, options: OpenEnvOptions, headers: Mapping[str, str]) -> ServerEpisode:
        """Connect to a server that has room, and find out what tools it has.

        Raises:
            EnvironmentFailed: there is no such server, or it stays full.
        """
        deadline = asyncio.get_running_loop().time() + CAPACITY_WAIT_S
        while True:
            connection = Connection(url, message_timeout_s=options.call_timeout_s, max_message_size_mb=MESSAGE_MB, headers=dict(headers))
            try:
                await connection.connect()
                tools = await _tools(connection)
                return cls(connection, tools, await _action_schema(url, headers) if tools is None else {}, options)
            except Refused as error:
                await connection.close()
                if error.code != CAPACITY:
                    raise EnvironmentFailed(f"the environment server refused a session: {error}") from error
                if asyncio.get_running_loop().time() > deadline:
                    raise EnvironmentFailed(
                        f"the environment server stays full ({error}); set [limits] sessions to what it takes"
                    ) from error
                await asyncio.sleep(LOOK_S)
            except (OSError, httpx.HTTPError) as error:
                await connection.close()
                raise EnvironmentFailed(f"cannot use the environment server: {error}") from error
            except BaseException:
                await connection.close()
                raise

    async def reset(self, row: Mapping[str, Any]) -> str:
        """Begin the episode; the server takes of `row` what its `reset` knows."""
        self._rewards, self._n_steps, self._done = [], 0, False
        return shown((await self._connection.request("reset", row)).get("observation"))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Make one step: the call of an MCP tool, or the action itself."""
        if self._done:
            raise ToolError("the episode is over")
        action = {"type": "call_tool", "tool_name": name, "arguments": dict(arguments)} if self._mcp else dict(arguments)
        self.sound = False
        try:
            answer = await self._connection.request("step", action)
            self.sound = True
        except Refused as error:
            self.sound = True
            if error.code in MODEL_ERRORS:
                raise ToolError(str(error)) from error
            raise
        self._n_steps += 1
        self._done = bool(answer.get("done"))
        if answer.get("reward") is not None:
            self._rewards.append(answer["reward"])
        observation = answer.get("observation")
        text = tool_result(observation) if self._mcp else shown(observation)
        return f"{text}\nThe episode is over." if self._done else text

    async def verdict(self) -> Verdict:
        """Return what the episode is worth."""
        self.must_be_sound()
        details = {"n_steps": self._n_steps, "done": self._done}
        if self._options.reward == "state":
            return verdict_of(await self._late_reward(), self._options.reward_range, **details)
        if not self._done:
            await self._alive()
        if self._rewards:
            numbers = all(isinstance(reward, bool | int | float) for reward in self._rewards)
            total = sum(self._rewards) if self._options.reward == "sum" and numbers else self._rewards[-1]
            return verdict_of(total, self._options.reward_range, **details)
        if self._done:
            raise EnvironmentFailed("the episode is done and no step of it had a reward")
        why = "the agent ended before the episode was done" if self._n_steps else "the agent took no step"
        return Verdict("failed", 0.0, f"{why}, and no step had a reward", details=details)

    async def _alive(self) -> None:
        """Raise where the server has gone since the last step: whether the agent would have gone on, nobody knows."""
        with suppress(Refused):
            await self._connection.request("state")

    async def _late_reward(self) -> Any:
        limit_s = self._options.verdict_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                while (reward := (await self._connection.request("state")).get("reward")) is None:
                    await asyncio.sleep(min(LOOK_S, limit_s / 4))
        except TimeoutError as error:
            raise EnvironmentFailed(f"the environment's state had no reward {limit_s:g} s after the session") from error
        return reward

    async def close(self) -> None:
        """End the connection, and with it the server's environment."""
        await self._connection.close()


async def _tools(connection: Connection) -> tuple[Tool, ...] | None:
    """Return the MCP tools of an environment, or None when it takes actions of its own."""
    try:
        answer = await connection.request("step", {"type": "list_tools"})
    except Refused as error:
        if error.code in MODEL_ERRORS:
            return None
        raise
    listed = (answer.get("observation") or {}).get("tools")
    if listed is None:
        return None
    if not listed:
        raise EnvironmentFailed("the environment lists no tools")
    return tuple(Tool(tool["name"], tool.get("description") or "", tool.get("input_schema") or {"type": "object"}) for tool in listed)


async def _action_schema(url: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON schema of an environment's actions, without what is not for agents."""
    http = url.replace("ws", "http", 1) if url.startswith("ws") else url
    async with httpx.AsyncClient(headers=dict(headers), trust_env=False, timeout=60) as client:
        answer = (await client.get(f"{http.rstrip('/')}/schema")).raise_for_status()
    schema = dict(answer.json()["action"])
    schema["properties"] = {name: value for name, value in schema.get("properties", {}).items() if name != "metadata"}
    return {"type": "object", **schema}


def shown(observation: Any) -> str:
    """Return an observation as text: what is left without metadata, and a lone text as it is."""
    if not isinstance(observation, dict):
        return "" if observation is None else str(observation)
    seen = {key: value for key, value in observation.items() if key != "metadata"}
    if not seen:
        return ""
    (only, *more) = seen.values()
    return only if isinstance(only, str) and not more else json.dumps(seen, ensure_ascii=False)


def tool_result(observation: Any) -> str:
    """Return the text of an MCP tool's result.

    Raises:
        ToolError: the tool failed.
    """
    seen = observation if isinstance(observation, dict) else {}
    if seen.get("error"):
        raise ToolError(str(seen["error"].get("message")))
    result = seen.get("result")
    if not isinstance(result, dict) or "content" not in result:
        return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
    text = "\n".join(part.get("text", "") for part in result["content"] if isinstance(part, dict))
    if result.get("is_error"):
        raise ToolError(text)
    return text
