"""Record what an agent sends in each state, by running it against the scripted policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from longrein.errors import ConfigError
from longrein.practice.script import OUTPUT, PROGRAM, PROMPT, answer
from longrein.practice.tasks import SOLUTION, PracticeTasks
from longrein.tasks.examples import CHECK
from longrein.testing.scripted import Reply, ScriptedServer

if TYPE_CHECKING:
    from longrein.model import Rollout
    from longrein.plugins import PluginHost


@frozen
class Exchange:
    """A request and the reply that it got, with marks in place of statement, program and check output."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None
    reply: Reply


@frozen
class Recording:
    """The sessions of one agent: one whose program passes the check, and one whose program does not."""

    agent: str
    passing: Sequence[Exchange]
    failing: Sequence[Exchange]

    @property
    def sessions(self) -> tuple[Sequence[Exchange], Sequence[Exchange]]:
        """Both sessions."""
        return self.passing, self.failing


def record(agents: Mapping[str, Mapping[str, Any]], host: PluginHost, *, log: Callable[[str], None]) -> list[Recording]:
    """Run each agent twice.

    Raises:
        ConfigError: the scripted policy cannot drive an agent with these options.
    """
    recordings = []
    for name, options in agents.items():
        log(f"recording what {name} sends")
        passing, failing = (asyncio.run(_session(name, options, host, passes=passes)) for passes in (True, False))
        recordings.append(Recording(name, passing, failing))
    return recordings


async def _session(name: str, options: Mapping[str, Any], host: PluginHost, *, passes: bool) -> list[Exchange]:
    from longrein.config import from_mapping
    from longrein.rollout.engine import Engine
    from longrein.rollout.spec import RolloutSpec

    exchanges: list[Exchange] = []

    def script(request: dict[str, Any]) -> Reply:
        reply = answer(request, passes=passes)
        exchanges.append(Exchange([_parsed(message) for message in request["messages"]], request.get("tools"), reply))
        return reply

    config = from_mapping({"taskset": "practice", "agents": {name: dict(options)}, "limits": {"max_calls": 12}})
    task = next(PracticeTasks().tasks())
    check = f"print({OUTPUT!r})\nraise SystemExit({0 if passes else 1})\n"
    task = evolve(task, public=evolve(task.public, prompt=PROMPT, files={CHECK: check}, check=CHECK))
    with ScriptedServer(script) as server:
        # The model's name stands in some prompts: a second name shows where.
        endpoint = evolve(server.endpoint, model="practice" if passes else "policy")
        async with Engine(config, host, endpoint=endpoint) as engine:
            rollout = await engine.rollout(RolloutSpec.of(task, name, 0, run_seed=0))
    _driven(name, options, rollout)
    return exchanges


def _parsed(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message with the arguments of its tool calls as objects, so that marks in them can be replaced."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [{"type": "function", "function": {**function, "arguments": json.loads(function["arguments"])}} for function in functions]
    return {**message, "tool_calls": calls} if calls else dict(message)


def _driven(name: str, options: Mapping[str, Any], rollout: Rollout) -> None:
    written = rollout.session.workspace.get(SOLUTION, b"").decode(errors="replace")
    if rollout.outcome.kind != "completed" or written.strip() != PROGRAM:
        reason = rollout.outcome.reason or "the program was not written"
        raise ConfigError(
            f"the practice policy cannot drive agent {name!r} with options {dict(options)}: the trial session ended as "
            f"{rollout.outcome.kind} ({reason}). It knows agents that offer the tools write and bash, and Aider's whole format; "
            "name such agents, or another policy"
        )
