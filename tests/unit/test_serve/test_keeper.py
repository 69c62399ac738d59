"""A policy server that was killed is started again with the weights it had, so often and no more."""

from __future__ import annotations

import os
import queue
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from longrein.capture.engine import EngineClient
from longrein.serve import keeper as keeper_module
from longrein.serve.keeper import Keeper
from longrein.serve.process import ServerProcess
from longrein.serve.weights import write_weights

BODY = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3, "logprobs": True, "return_token_ids": True}


@pytest.fixture
def kept(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ServerProcess, queue.Queue[str], queue.Queue[str]]]:
    """A kept server that may be restarted once, its log lines, and the reason why it is over."""
    monkeypatch.setattr(keeper_module, "RESTARTS", 1)
    said: queue.Queue[str] = queue.Queue()
    over: queue.Queue[str] = queue.Queue()
    with tempfile.TemporaryDirectory(prefix="lr-") as runtime:
        server = ServerProcess.start(model_dir, runtime=Path(runtime), log=Path(runtime) / "log")
        keeper = Keeper(server, log=said.put, over=over.put)
        yield server, said, over
        keeper.stop()
        assert not server.alive
        assert not server.weights.exists()


@pytest.mark.timeout(300)
async def test_a_killed_server_comes_back_with_its_weights_while_requests_wait(
    kept: tuple[ServerProcess, queue.Queue[str], queue.Queue[str]], make_model: Callable[[int], Any]
) -> None:
    server, said, over = kept
    server.control.load(write_weights(make_model(5).state_dict().items(), server.weights, 3), 3)
    client = EngineClient(server.endpoint)
    before = await client.ask({"model": server.endpoint.model, **BODY, "temperature": 0.0}, exact=True)
    first = server.pid
    os.kill(first, signal.SIGKILL)
    after = await client.ask({"model": server.endpoint.model, **BODY, "temperature": 0.0}, exact=True)
    await client.aclose()
    assert said.get(timeout=5) == "the policy server was killed by SIGKILL; starting it again"
    assert server.pid != first
    assert after["choices"][0]["token_ids"] == before["choices"][0]["token_ids"]
    assert after["longrein"]["version_first"] == server.control.status()["version"] == 3
    os.kill(server.pid, signal.SIGKILL)
    assert over.get(timeout=60) == "the policy server was killed by SIGKILL, after 1 restarts"


@pytest.mark.timeout(300)
def test_a_server_that_closes_down_by_itself_is_not_started_again(kept: tuple[ServerProcess, queue.Queue[str], queue.Queue[str]]) -> None:
    server, _, over = kept
    os.kill(server.pid, signal.SIGTERM)
    assert over.get(timeout=60).startswith("the policy server ended with status 0; the policy server ended by itself; the end of")
