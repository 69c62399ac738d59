"""Weights from a trainer to a real vLLM through shared memory: every kind of parameter, damage, dead trainers, workers, dtypes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.vllm.conftest import Serve, Served
from transformers import LlamaForCausalLM

from longrein.errors import ServeError
from longrein.serve.keeper import Keeper
from longrein.serve.weights import write_weights

pytestmark = pytest.mark.timeout(300)
BOUND = 1e-4
LAYER = (
    *(f"self_attn.{name}_proj" for name in "qkvo"),
    *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    "input_layernorm",
    "post_attention_layernorm",
)
KINDS = ("model.embed_tokens", "model.norm", "lm_head", *(f"model.layers.1.{name}" for name in LAYER))


@pytest.fixture(scope="module", params=["tied", "untied"])
def served(request: pytest.FixtureRequest, serve: Serve) -> Iterator[Served]:
    with serve(tied=request.param == "tied") as running:
        yield running


@pytest.fixture
def fresh(served: Served, make_llama: Callable[..., LlamaForCausalLM]) -> Served:
    """The served model with its first weights."""
    served.model.load_state_dict(make_llama(tied=served.model.config.tie_word_embeddings).state_dict())
    served.sync()
    return served


def change(model: LlamaForCausalLM, name: str) -> None:
    """Move one parameter far enough to be seen."""
    parameter = model.get_parameter(f"{name}.weight")
    with torch.no_grad():
        parameter.add_(torch.randn_like(parameter) * parameter.std().clamp(min=0.3))


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_parameter_is_served_after_a_sync(fresh: Served, name: str) -> None:
    change(fresh.model, name)
    assert fresh.difference() > 1e-3, "the change must show, or the test shows nothing"
    fresh.sync()
    assert fresh.difference() < BOUND


def test_files_that_do_not_fit_leave_the_old_weights(fresh: Served) -> None:
    served = fresh
    whole = load_file(write_weights(served.model.named_parameters(), served.weights, served.version))
    cut, path = served.weights / "cut.safetensors", served.weights / "bad.safetensors"
    damaged = {
        "is missing": {name: tensor for name, tensor in whole.items() if name != "model.norm.weight"},
        "unknown name 'model.other'": {**whole, "model.other": torch.zeros(1)},
        "has shape": {**whole, "model.norm.weight": torch.zeros(7)},
    }
    for words, tensors in damaged.items():
        save_file(tensors, path)
        with pytest.raises(ServeError, match=f"(?s){words}.*old weights stay"):
            served.load(path)
    cut.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ServeError, match=r"cannot read weights from cut\.safetensors"):
        served.load(cut)
    outside = served.weights.parent / f"outside-{os.getpid()}.safetensors"
    try:
        save_file(whole, outside)
        link = served.weights / "link.safetensors"
        link.symlink_to(outside)
        for named in (outside, link):
            with pytest.raises(ServeError, match="only files below"):
                served.load(named)
    finally:
        outside.unlink()
    for left in (cut, path, link):
        left.unlink()
    assert served.difference() < BOUND


def test_a_trainer_that_died_half_way_leaves_the_old_weights(fresh: Served) -> None:
    """It had paused vLLM and begun an update; the next trainer goes on with the same server."""
    served = fresh
    control = served.server.control
    control.pause()
    control._post("start_weight_update")  # type: ignore[attr-defined]  # what its death leaves
    control.resume()
    assert served.difference() < BOUND
    change(served.model, "model.norm")
    served.sync()
    assert served.difference() < BOUND


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # httpx leaves sockets that were refused to the collector
def test_a_killed_server_comes_back_with_the_newest_weights(serve: Serve) -> None:
    said: list[str] = []
    with serve() as served:
        change(served.model, "model.embed_tokens")
        served.sync()
        keeper = Keeper(served.server, log=said.append, over=said.append)
        first = psutil.Process(served.server.pid)
        vllm = next(child for child in first.children() if "api_server" in " ".join(child.cmdline()))
        tree = vllm.children(recursive=True)
        os.kill(vllm.pid, signal.SIGKILL)
        psutil.wait_procs([first, vllm, *tree], timeout=60)
        assert not [process for process in (first, vllm, *tree) if process.is_running()]
        _wait_until_served(served)
        assert served.difference() < BOUND
        assert said == ["the policy server was killed by SIGKILL; starting it again"]
        keeper.stop()


def _wait_until_served(served: Served) -> None:
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline:
        try:
            served.difference()
            return
        except ServeError:
            time.sleep(0.5)
    pytest.fail("the server did not come back")


def test_workers_of_tensor_parallelism_take_their_shares(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    with serve(tied=True, args=("--tensor-parallel-size", "2")) as served:
        for name in ("model.embed_tokens", "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj", "model.norm"):
            change(served.model, name)
        served.sync()
        assert served.difference() < BOUND


def test_a_server_in_bfloat16_takes_float32_weights(serve: Serve) -> None:
    """It serves the rounded values: as a model does that was rounded here."""
    with serve(dtype="bfloat16") as served:
        change(served.model, "model.layers.0.mlp.up_proj")
        served.sync()
        assert 0 < served.difference() < 0.5
        rounded = {name: tensor.to(torch.bfloat16).float() for name, tensor in served.model.state_dict().items()}
        before = served.difference()
        served.model.load_state_dict(rounded)
        assert served.difference() <= before + 0.05


def test_vllm_that_cannot_start_says_why(serve: Serve) -> None:
    with pytest.raises(ServeError, match=r"(?s)did not start.*--no-such-flag"), serve(args=("--no-such-flag",)):
        pass


def test_everything_ends_with_the_parent(serve: Serve, tmp_path: Path) -> None:
    """The keeper's standard input ends when its parent is killed: vLLM, its engine and the weights go."""
    with serve() as served:
        keeper = psutil.Process(served.server.pid)
        tree, weights = [keeper, *keeper.children(recursive=True)], served.weights
        assert len(tree) >= 3
        assert served.server._process.stdin is not None
        served.server._process.stdin.close()
        _, alive = psutil.wait_procs(tree, timeout=60)
        assert not alive
        assert not weights.exists()
