"""Replies that cannot be trained are marked with both numbers, and endpoints that give none are refused beforehand."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from attrs import evolve

from longrein.capture.checks import problem_of
from longrein.capture.engine import EngineClient
from longrein.capture.preflight import check_endpoint
from longrein.capture.server import CaptureServer
from longrein.config import SamplingConfig
from longrein.errors import CaptureError
from longrein.model import PublicTask, TurnLabel
from longrein.testing.scripted import Fault, Reply, ScriptedServer
from longrein.turns import build_rows, label_calls

ASK = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("fewer_ids", "15 sampled ids returned, 30 reported as usage.completion_tokens"),
        ("no_ids", "0 prompt ids returned, 30 sampled tokens reported"),
        ("unequal_logprobs", "30 sampled ids, 29 log-probabilities"),
        ("null_logprob", "30 sampled ids, 30 log-probabilities, of which number 0 is None"),
        ("nan_logprob", "30 sampled ids, 30 log-probabilities, of which number 0 is nan"),
        ("positive_logprob", "30 sampled ids, 30 log-probabilities, of which number 0 is 0.5"),
    ],
)
async def test_a_faulty_reply_is_marked_and_still_reaches_the_agent(fault: Fault, problem: str) -> None:
    with ScriptedServer(lambda _: Reply("x" * 29, fault=fault)) as policy:
        async with CaptureServer(policy.endpoint, sampling=SamplingConfig(), training=True, open_port=True, max_reply_tokens=100) as server:
            session = server.open_session(max_calls=5, max_tokens=1000, seed=0)
            async with httpx.AsyncClient(headers={"x-api-key": session.key}) as agent:
                answer = await agent.post(f"http://127.0.0.1:{server.port}/v1/chat/completions", json=ASK)
    (call,) = session.calls
    assert call.problem == problem
    assert answer.json()["choices"][0]["message"]["content"] == call.reply["content"] == "x" * 29
    assert all(value == value for value in call.logprobs), "a record holds numbers only"
    assert session.n_replies == 1
    assert session.n_errors == 0
    assert session.tokens_left == 970, "reported tokens count, however many ids came"
    labelled = label_calls(session.calls, session.tools, task=PublicTask("hello"))
    assert [(turn.label, turn.decided_by) for turn in labelled] == [(TurnLabel("invalid", problem), "capture")]
    assert build_rows(labelled, rollout_id="r", agent="a", token_budget=None).rows == ()


@pytest.mark.parametrize(
    ("prompt", "sampled", "logprobs", "n_reported", "problem"),
    [
        ([1], [2, 3], [-0.1, 1e-4], 2, None),
        ([1], [], [], 0, None),
        ([1], [2], [-0.1], None, None),
        ([1], [2, 3], [-0.1, 1.1e-4], 2, "2 sampled ids, 2 log-probabilities, of which number 1 is 0.00011"),
        ([1], [2, 3], [-0.1, float("-inf")], 2, "2 sampled ids, 2 log-probabilities, of which number 1 is -inf"),
        ([1], [2], ["-1"], 1, "1 sampled ids, 1 log-probabilities, of which number 0 is '-1'"),
        ([1], [2, 3, 4], [-0.1, -0.1], 3, "3 sampled ids, 2 log-probabilities"),
        ([1], [2, 3, 4], [-0.1, None, -0.1], 3, "3 sampled ids, 3 log-probabilities, of which number 1 is None"),
        ([1], [2, 3, 4], [], 3, "3 sampled ids, 0 log-probabilities"),
        ([1], [2] * 6, [-0.1] * 6, 30, "6 sampled ids returned, 30 reported as usage.completion_tokens"),
        ([], [2], [-0.1], 1, "0 prompt ids returned, 1 sampled tokens reported"),
        ([1], [], [], None, "0 sampled ids returned, and the reply reports no usage"),
    ],
)
def test_what_can_be_trained(
    prompt: list[int], sampled: list[int], logprobs: list[Any], n_reported: int | None, problem: str | None
) -> None:
    assert problem_of(prompt, sampled, logprobs, n_reported) == problem


async def test_a_sound_endpoint_gets_its_level_and_length(folder: Path) -> None:
    with ScriptedServer(lambda _: Reply("hello"), socket=folder / "p.sock", max_model_len=5000) as policy:
        found = await check_endpoint(evolve(policy.endpoint, max_model_len=None, level="text"), training=True)
    assert (found.level, found.max_model_len) == ("tokens", 5000)


@pytest.mark.parametrize(
    ("fault", "level", "reason"),
    [
        ("no_ids", "logprobs", "0 prompt ids returned"),
        ("null_logprob", "logprobs", "4 sampled ids, 4 log-probabilities, of which number 0 is None"),
    ],
)
async def test_an_endpoint_without_ids_serves_runs_and_is_refused_for_training(fault: Fault, level: str, reason: str) -> None:
    with ScriptedServer(lambda _: Reply("hello", fault=fault)) as policy:
        assert (await check_endpoint(policy.endpoint, training=False)).level == level
        with pytest.raises(CaptureError, match=f"{reason}.*--return-tokens-as-token-ids --logprobs-mode processed_logprobs"):
            await check_endpoint(policy.endpoint, training=True)


@pytest.mark.parametrize(("raw", "refused"), [(True, True), (False, False)])
async def test_log_probabilities_from_before_the_temperature_are_refused_for_training(raw: bool, refused: bool) -> None:
    def script(request: dict[str, Any]) -> Reply:
        gap = 3.0 if raw else 3.0 / request["temperature"]
        # The token that was sampled stands first, however unlikely it is; another one each time.
        sampled = {f"odd{request['temperature']}": -9.0}
        return Reply("h", top_logprobs={**sampled, "a": -0.1, "b": -0.1 - gap})

    with ScriptedServer(script) as policy:
        if refused:
            with pytest.raises(CaptureError, match=r"before the temperature is applied.*--logprobs-mode processed_logprobs"):
                await check_endpoint(policy.endpoint, training=True)
        else:
            assert (await check_endpoint(policy.endpoint, training=True)).level == "tokens"


async def test_a_wrong_model_or_url_is_named() -> None:
    named = "does not serve 'scriptd'; it serves scripted; did you mean 'scripted'"
    with ScriptedServer(lambda _: Reply("hello")) as policy, pytest.raises(CaptureError, match=named):
        await check_endpoint(evolve(policy.endpoint, model="scriptd"), training=False)
    with pytest.raises(CaptureError, match="does not answer: could not reach engine"):
        await check_endpoint(policy.endpoint, training=False)


async def test_few_idle_connections_are_kept() -> None:
    """httpcore's work for each request grows with their square."""
    with ScriptedServer(lambda _: Reply("x")) as policy:
        client = EngineClient(policy.endpoint)
        await asyncio.gather(*(client.ask(ASK, exact=False) for _ in range(40)))
        port = httpx.URL(policy.endpoint.url).port
        kept = [c for c in psutil.Process().net_connections("tcp") if c.raddr and c.raddr.port == port and c.status == "ESTABLISHED"]
        await client.aclose()
    assert len(kept) <= 16
