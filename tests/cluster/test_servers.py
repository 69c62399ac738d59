"""Several servers of one policy: sessions stick, new ones go where fewest are, a dead one is left and comes back, syncs reach all."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from tests.cluster.test_ray import PLUGIN
from tests.e2e.conftest import TOY
from tests.unit.capturing import ASK, client, open_session, until
from tests.unit.test_train.conftest import model  # noqa: F401 (a fixture)

from longrein.capture.endpoint import PolicyEndpoint
from longrein.capture.server import CaptureServer
from longrein.config import SamplingConfig, from_mapping
from longrein.rollout.record import read_lines, read_rollouts
from longrein.serve.process import ServerProcess
from longrein.testing.scripted import Reply, ScriptedServer

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def servers() -> Iterator[list[ScriptedServer]]:
    """Two servers of one policy."""
    with ScriptedServer(lambda _: Reply("first")) as first, ScriptedServer(lambda _: Reply("second")) as second:
        yield [first, second]


def capture(servers: list[ScriptedServer]) -> CaptureServer:
    """Return capture before both."""
    endpoint = evolve(servers[0].endpoint, others=tuple(server.endpoint for server in servers[1:]))
    return CaptureServer(endpoint, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=50)


async def said(server: CaptureServer, key: str) -> str:
    """Ask for a session and return the reply."""
    async with client(server, key) as http:
        answer = await http.post("/chat/completions", json=ASK)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])


async def test_sessions_stick_and_new_ones_go_where_fewest_are(servers: list[ScriptedServer]) -> None:
    async with capture(servers) as server:
        sessions = [open_session(server) for _ in range(4)]
        asked = [[await said(server, session.key) for session in sessions] for _ in range(3)]
        assert asked[0] == asked[1] == asked[2] == ["first", "second"] * 2
        sessions[0].close()
        sessions[2].close()
        assert [await said(server, open_session(server).key) for _ in range(2)] == ["first", "first"]


async def test_a_dead_server_is_left_and_comes_back_when_its_weights_are_current(monkeypatch: pytest.MonkeyPatch) -> None:
    from longrein.capture import servers as pool

    monkeypatch.setattr(pool, "PROBE_S", 0.1)
    served = {"version": 3, "asked": 0}

    async def version(_: Any) -> int:
        served["asked"] += 1
        return served["version"]

    with ScriptedServer(lambda _: Reply("second")) as second:
        with ScriptedServer(lambda _: Reply("first")) as first:
            endpoint, port = evolve(first.endpoint, others=(second.endpoint,)), first.endpoint.url
        server = CaptureServer(endpoint, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=50)
        async with server:
            server.version = 4
            monkeypatch.setattr(pool, "served_version", version)
            session = open_session(server)
            assert await said(server, session.key) == "second", "the first has gone"
            await until(lambda: served["asked"] >= 3)
            members = server._client.servers._servers
            assert members[0].resting, "it serves an old version"
            served["version"] = 4
            await until(lambda: not members[0].resting)
            assert await said(server, session.key) == "second", "its session stays where its prefix is now"
            assert [member.resting for member in members] == [False, False]
            assert port == members[0].client.endpoint.url


def test_without_any_server_a_call_is_an_error(servers: list[ScriptedServer]) -> None:
    gone = PolicyEndpoint("http://127.0.0.1:9/v1", "m", others=(PolicyEndpoint("http://127.0.0.1:10/v1", "m"),))

    async def ask() -> int:
        server = CaptureServer(gone, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=50)
        async with server, client(server, open_session(server).key) as http:
            return (await http.post("/chat/completions", json=ASK)).status_code

    assert asyncio.run(ask()) >= 500


@pytest.mark.timeout(400)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # httpx leaves sockets that were refused to the collector
def test_training_goes_on_when_one_of_two_servers_is_killed(
    tmp_path: Path,
    model: Path,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from longrein.training import train

    started: list[ServerProcess] = []
    start = ServerProcess.start
    monkeypatch.setattr(ServerProcess, "start", lambda *args, **given: started.append(start(*args, **given)) or started[-1])
    said: list[str] = []

    def log(line: str) -> None:
        said.append(line)
        if line.startswith("step 1/"):
            os.kill(started[1].pid, signal.SIGKILL)

    wanted = from_mapping(
        {
            "taskset": "doubling",
            "agents": {"program": {"code": "ask('go')"}},
            "plugins": {"use": [str(TOY), str(PLUGIN)]},
            "run": {"out": str(tmp_path / "run")},
            "policy": {"model": str(model), "servers": 2},
            "limits": {"sessions": 4, "max_reply_tokens": 8},
            "reward": {"name": "parity"},
            "train": {"max_steps": 4, "group_size": 4, "rows_per_step": 8, "learning_rate": 1e-2},
        }
    )
    folder = train(wanted, log=log)
    again = [line for line in said if line.endswith(": the policy server was killed by SIGKILL; starting it again")]
    assert len(again) == 1
    assert again[0].startswith(("server 1", "server 2"))
    steps = [entry for entry in read_lines(folder / "metrics.jsonl") if "loss" in entry]
    assert [entry["step"] for entry in steps] == [1, 2, 3, 4]
    assert all(entry["canary/difference_max"] < 1e-2 for entry in steps)
    rollouts = list(read_rollouts(folder))
    assert all(rollout.outcome.kind == "completed" for rollout in rollouts), [rollout.outcome for rollout in rollouts]
    assert (folder / "server.log").exists()
    assert (folder / "server-2.log").exists()
    assert not any(server.weights and server.weights.exists() for server in started)
