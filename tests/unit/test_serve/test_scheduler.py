"""Several replies at once are exactly those of plain forward passes, and never mix two versions of the weights."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from longrein.errors import ServeError
from longrein.serve.prefix import PrefixCache
from longrein.serve.weights import write_weights

from .conftest import TASK


def logprobs(reply: dict[str, Any]) -> list[float]:
    return [entry["logprob"] for entry in reply["choices"][0]["logprobs"]["content"]]


def ask(i: int, n: int = 40) -> dict[str, Any]:
    # Prompts of different lengths, some with a long common prefix, as the samples of a group have.
    text = "the same words at the start, and then " * (1 + i % 3) + "others" * i
    return {"messages": [{"role": "user", "content": text}], "seed": i, "max_tokens": n + 7 * i, "temperature": 0.7 + 0.1 * i}


async def test_eight_at_once_equal_plain_forward_passes_and_one_by_one(model_dir: Path, start: Any, expected: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    async with start(model_dir) as server:
        together = await asyncio.gather(*(server.chat(**ask(i), ignore_eos=True) for i in range(8)))
        assert server.scheduler.status()["forwards"] < sum(len(logprobs(reply)) for reply in together) / 3, "the requests were not batched"
    async with start(model_dir) as server:
        for i, reply in enumerate(together):
            assert logprobs(reply) == pytest.approx(expected(model, reply, ask(i)["temperature"]), abs=1e-4)
            assert len(logprobs(reply)) == ask(i)["max_tokens"]
            alone = await server.chat(**ask(i), ignore_eos=True)
            assert alone["choices"][0]["token_ids"] == reply["choices"][0]["token_ids"], "the same seed, alone"


async def test_prompts_longer_than_one_forward_pass_are_exact(model_dir: Path, start: Any, expected: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("longrein.serve.scheduler.PREFILL_TOKENS", 16)
    async with start(model_dir) as server:
        reply = await server.chat(**ask(5))
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    assert logprobs(reply) == pytest.approx(expected(model, reply, ask(5)["temperature"]), abs=1e-4)


async def test_the_next_turn_reuses_the_one_before_and_stays_exact(model_dir: Path, start: Any, expected: Any) -> None:
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    async with start(model_dir) as server:
        first = await server.chat(max_tokens=30, seed=1)
        before = server.scheduler.status()["reused_tokens"]
        history = [TASK, first["choices"][0]["message"], {"role": "user", "content": "More."}]
        second = await server.chat(messages=history, max_tokens=30, seed=2)
        reused = server.scheduler.status()["reused_tokens"] - before
        assert reused >= len(first["prompt_token_ids"])
        assert logprobs(second) == pytest.approx(expected(model, second), abs=1e-4)


async def test_forgotten_prefixes_change_nothing(model_dir: Path, start: Any) -> None:
    async with start(model_dir) as keeps, start(model_dir, prefix_bytes=0) as forgets:
        for i in (0, 3, 0):
            kept, fresh = await keeps.chat(**ask(i)), await forgets.chat(**ask(i))
            assert logprobs(kept) == pytest.approx(logprobs(fresh), abs=1e-4)
        assert keeps.scheduler.status()["reused_tokens"] > 0 == forgets.scheduler.status()["reused_tokens"]


async def test_a_reply_never_mixes_two_versions(
    model_dir: Path,
    make_model: Callable[[int], Any],
    start: Any,
    expected: Any,
    tmp_path: Path,
) -> None:
    models = {0: AutoModelForCausalLM.from_pretrained(model_dir), **{v: make_model(v) for v in (1, 2, 3)}}

    answered = asyncio.Event()

    async def keep_asking(server: Any, i: int) -> list[dict[str, Any]]:
        replies = []
        while not replies or replies[-1]["longrein"]["version_last"] < 3:
            question = [{"role": "user", "content": f"question {i}"}]
            replies.append(await server.chat(messages=question, max_tokens=20 + 5 * i, ignore_eos=True))
            answered.set()
        return replies

    async with start(model_dir) as server:
        asking = [asyncio.create_task(keep_asking(server, i)) for i in range(8)]
        for version in (1, 2, 3):
            answered.clear()
            await answered.wait()
            path = write_weights(models[version].named_parameters(), tmp_path, version)
            await asyncio.wrap_future(server.scheduler.load(path, version))
        replies = [reply for task in asking for reply in await task]
    assert {reply["longrein"]["version_first"] for reply in replies} == {0, 1, 2, 3}
    for reply in replies:
        version = reply["longrein"]["version_first"]
        assert reply["longrein"]["version_last"] == version
        assert logprobs(reply) == pytest.approx(expected(models[version], reply), abs=1e-4), f"not those of version {version}"


async def test_new_weights_that_do_not_fit_leave_the_old_ones(model_dir: Path, start: Any, tmp_path: Path) -> None:
    weights = dict(AutoModelForCausalLM.from_pretrained(model_dir).named_parameters())
    norm = "model.norm.weight"
    wrong = {
        "unknown name 'model.extra'": {**weights, "model.extra": weights[norm].clone()},
        f"'{norm}' is missing": {name: tensor for name, tensor in weights.items() if name != norm},
        f"'{norm}' has shape (31,), expected (32,)": {**weights, norm: weights[norm][:31]},
        f"'{norm}' has values that are not finite": {**weights, norm: weights[norm] * float("nan")},
    }
    async with start(model_dir) as server:
        before = await server.chat(seed=1, max_tokens=10)
        for version, (message, tensors) in enumerate(wrong.items(), start=1):
            path = write_weights(tensors.items(), tmp_path, version)
            with pytest.raises(ServeError, match="the old weights stay") as error:
                await asyncio.wrap_future(server.scheduler.load(path, version))
            assert message in str(error.value)
        (tmp_path / "damaged.safetensors").write_bytes(b"no weights")
        with pytest.raises(ServeError, match="cannot read weights"):
            await asyncio.wrap_future(server.scheduler.load(tmp_path / "damaged.safetensors", 9))
        after = await server.chat(seed=1, max_tokens=10)
    assert logprobs(before) == pytest.approx(logprobs(after), abs=1e-5)
    assert after["longrein"] == {"version_first": 0, "version_last": 0}


async def test_more_requests_than_rows_wait_their_turn(model_dir: Path, start: Any) -> None:
    async with start(model_dir, max_batch=2) as server:
        replies = await asyncio.gather(*(server.chat(**ask(i)) for i in range(6)))
        assert len(replies) == server.scheduler.status()["replies"] == 6


async def test_a_failed_forward_fails_its_requests_and_no_later_one(model_dir: Path, start: Any, monkeypatch: Any) -> None:
    async with start(model_dir) as server:
        with monkeypatch.context() as patch:
            patch.setattr(server.scheduler.model, "forward", lambda **_: 1 / 0)
            reply = await server.post(max_tokens=5)
            assert reply.status_code == 500
            assert "ZeroDivisionError" in reply.json()["error"]["message"]
        assert (await server.post(max_tokens=5)).status_code == 200


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), max_size=12), st.lists(st.integers(0, 2), min_size=1, max_size=8))
def test_the_prefix_cache_finds_the_longest_prefix_and_keeps_its_bound(held: list[list[int]], wanted: list[int]) -> None:
    cache, unbounded = PrefixCache(12 * 8), PrefixCache(10_000)
    for ids in held:
        states = [(torch.zeros(1, len(ids), 1), torch.zeros(1, len(ids), 1))]
        cache.add(ids, states)
        unbounded.add(ids, states)
        assert cache.n_tokens * 8 == cache.n_bytes <= 12 * 8
    common = [next((i for i, (a, b) in enumerate(zip(ids, wanted, strict=False)) if a != b), min(len(ids), len(wanted))) for ids in held]
    assert unbounded.longest(wanted)[0] == max(common, default=0)
    assert cache.longest(wanted)[0] <= max(common, default=0)
    cache.clear()
    assert cache.longest(wanted) == (0, [])
