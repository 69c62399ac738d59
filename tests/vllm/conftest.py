"""A real vLLM (CPU build) that serves a tiny Llama, and the trainer's copy of it beside."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import define
from tests.unit.test_serve.conftest import tokenizer  # noqa: F401 (a fixture)
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from longrein.sandbox import runtime_folder
from longrein.serve.canary import sample_canary, score
from longrein.serve.process import ServerProcess
from longrein.serve.vllm.start import start_vllm
from longrein.serve.weights import write_weights

QUICK = ("--enforce-eager",)
"""No compiled graphs: they take half a minute and serve the same values."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder needs vLLM."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.vllm)


@define
class Served:
    """A model in the trainer's hands, and the server that should serve the same."""

    model: LlamaForCausalLM
    server: ServerProcess
    version: int = 0

    def sync(self) -> None:
        """Send the weights as a trainer does."""
        self.version += 1
        self.load(write_weights(self.model.named_parameters(), self.weights, self.version))

    def load(self, path: Path) -> None:
        """Have a file loaded."""
        self.server.control.pause()
        try:
            self.server.control.load(path, self.version)
        finally:
            self.server.control.resume()

    @property
    def weights(self) -> Path:
        """The folder that the server takes files from."""
        assert self.server.weights is not None
        return self.server.weights

    def difference(self) -> float:
        """Return the largest difference of log-probabilities between the server's reply and the trainer's score of it."""
        reply = sample_canary(self.server.endpoint)
        scores = score(self.model, reply.prompt_ids, reply.sampled_ids)
        return max(abs(a - b) for a, b in zip(scores, reply.logprobs, strict=True))


Serve = Callable[..., Any]


@pytest.fixture(scope="session")
def make_llama(tokenizer: PreTrainedTokenizerFast) -> Callable[..., LlamaForCausalLM]:  # noqa: F811
    """Return what makes a Llama that vLLM's CPU kernels can serve (heads of 64)."""

    def make(*, tied: bool = True, seed: int = 0) -> LlamaForCausalLM:
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=1024,
            tie_word_embeddings=tied,
            initializer_range=0.1,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
        return LlamaForCausalLM(config).eval()

    return make


@pytest.fixture(scope="session")
def serve(
    make_llama: Callable[..., LlamaForCausalLM],
    tokenizer: PreTrainedTokenizerFast,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
) -> Serve:
    """Return a context manager around a running vLLM with a tiny Llama."""

    @contextmanager
    def serving(*, tied: bool = True, args: tuple[str, ...] = (), **options: Any) -> Iterator[Served]:
        model = make_llama(tied=tied)
        folder = tmp_path_factory.mktemp("served") / "tiny"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        with runtime_folder() as runtime:
            server = start_vllm(folder, runtime=runtime, log=runtime / "log", args=(*QUICK, *args), **options)
            try:
                yield Served(model, server)
            finally:
                server.stop()
                assert not list(Path(tempfile.gettempdir()).glob("longrein-weights-*"))

    return serving
