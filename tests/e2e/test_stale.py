"""Sessions whose weights became too old are ended, and a run that makes no others says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from tests.e2e.conftest import MakeConfig

from longrein.errors import RunStopped
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.tasks import load_tasks
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.training import figures

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(120)]
ASKS_AND_WAITS = "ask('go')\nimport time\nwhile 1: time.sleep(1)"
ASKS_TWICE = "ask('go'); ask('again')"


def scripted(engine: list[Engine], versions: dict[str, int]) -> Callable[[dict[str, Any]], Reply]:
    """Answer, and have the weights moved to a version when an agent has said the word for it."""

    def script(request: dict[str, Any]) -> Reply:
        said = request["messages"][-1]["content"]
        if said in versions and engine:
            engine[0].version = versions[said]
        return Reply("fine")

    return script


@pytest.mark.parametrize(
    ("phase", "version", "kind"), [("train", 5, "stale"), ("train", 4, "stalled"), ("eval:0", 5, "stalled")], ids=["old", "bound", "eval"]
)
async def test_a_session_ends_when_its_first_reply_is_too_old(
    toy_config: MakeConfig, toy_host: PluginHost, phase: str, version: int, kind: str
) -> None:
    with ScriptedServer(lambda _: Reply("fine")) as server:
        config = toy_config({"program": {"code": ASKS_AND_WAITS}}, server.endpoint.url, "limits.idle_s=3", "train.max_staleness=4")
        task = load_tasks(config.taskset, toy_host)[0]
        async with Engine(config, toy_host, endpoint=evolve(server.endpoint, level="tokens"), training=True) as engine:
            rollout = asyncio.ensure_future(engine.rollout(RolloutSpec.of(task, "program", 0, run_seed=0, phase=phase)))
            while not any(request["messages"][-1]["content"] == "go" for request in server.requests):
                await asyncio.sleep(0.05)
            async with asyncio.timeout(60):
                while not rollout.done():  # the reply must have been counted before the weights move
                    engine.version = version
                    await asyncio.sleep(0.05)
            done = await rollout
    assert done.outcome.kind == kind, done.outcome
    if kind == "stale":
        assert (done.verdict.status, done.reward.value) == ("unscorable", None)
        assert done.outcome.reason == "the policy went from version 0 to 5 while it ran ([train] max_staleness 4)"


async def test_a_session_that_spans_a_sync_has_the_version_of_each_turn(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    engines: list[Engine] = []
    with ScriptedServer(scripted(engines, {"again": 3})) as server:
        config = toy_config({"program": {"code": ASKS_TWICE}}, server.endpoint.url)
        task = load_tasks(config.taskset, toy_host)[0]
        async with Engine(config, toy_host, endpoint=evolve(server.endpoint, level="tokens"), training=True) as engine:
            engines.append(engine)
            rollout = await engine.rollout(RolloutSpec.of(task, "program", 0, run_seed=0, phase="train"))
    assert [(turn.call.version_first, turn.call.version_last) for turn in rollout.trajectory] == [(0, 0), (0, 3)]
    assert figures.of_rollout(rollout, rollout.trajectory)["program/spanned_sync"] == (1.0, 1.0)


async def test_a_run_in_which_every_session_becomes_too_old_says_what_to_change(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    with ScriptedServer(lambda _: Reply("fine")) as server:
        config = toy_config({"program": {"code": ASKS_AND_WAITS}}, server.endpoint.url, "limits.sessions=8", "train.max_staleness=1")
        task = load_tasks(config.taskset, toy_host)[0]
        async with Engine(config, toy_host, endpoint=evolve(server.endpoint, level="tokens"), training=True) as engine:

            async def age() -> None:
                while True:
                    engine.version += 1
                    await asyncio.sleep(0.05)

            aging = asyncio.ensure_future(age())
            specs = [RolloutSpec.of(task, "program", sample, run_seed=0, phase="train") for sample in range(24)]
            done = await asyncio.gather(*map(engine.rollout, specs), return_exceptions=True)
            aging.cancel()
    stops = [error for error in done if isinstance(error, RunStopped)]
    assert len(stops) == 5, "the twentieth and all after it"
    assert str(stops[0]).startswith("the last 20 sessions all became too old to be trained: the policy went from version ")
    assert "raise [train] max_staleness" in str(stops[0])
