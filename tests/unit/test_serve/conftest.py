"""A tiny Llama with a tiny tokenizer, and the server around it inside the test's own event loop."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from longrein.capture.listen import serving, unix_listener
from longrein.serve.api import Api
from longrein.serve.loading import load_policy
from longrein.serve.scheduler import Scheduler

# In the manner of Qwen's: text, then one block for each tool call, arguments as JSON.
TEMPLATE = """
{%- if tools %}{{ '<|im_start|>tools\n' }}{% for tool in tools %}{{ tool | tojson + '\n' }}{% endfor %}{{ '<|im_end|>\n' }}{% endif %}
{%- for message in messages %}
    {%- if message.role == 'refused' %}{{ raise_exception('no such role') }}{% endif %}
    {{- '<|im_start|>' + message.role + '\n' + message.content }}
    {%- for call in message.tool_calls or [] %}
        {%- if message.content or not loop.first %}{{ '\n' }}{% endif %}
        {{- '<tool_call>\n{"name": "' + call.function.name + '", "arguments": ' + call.function.arguments | tojson + '}\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}
"""
TOOLS = [{"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}]
TASK = {"role": "user", "content": "Write hello."}
CALLS = [{"command": "echo 'héllo' > a", "n": 1}, {"command": "cat a"}]
RESULTS = ["", "héllo"]
REPLIES = [
    f'I will.\n<tool_call>\n{{"name": "bash", "arguments": {json.dumps(CALLS[0], ensure_ascii=False)}}}\n</tool_call>',
    f'<tool_call>\n{{"name": "bash", "arguments": {json.dumps(CALLS[1], ensure_ascii=False)}}}\n</tool_call>',
    "Done.",
]


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator([TEMPLATE, *REPLIES], trainer)
    backend.add_tokens(["<tool_call>", "</tool_call>"])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    tokenizer.chat_template = TEMPLATE
    return tokenizer


@pytest.fixture(scope="session")
def make_model(tokenizer: PreTrainedTokenizerFast) -> Callable[[int], LlamaForCausalLM]:
    def make(seed: int) -> LlamaForCausalLM:
        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=1024,
            tie_word_embeddings=True,
            initializer_range=0.2,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
        )
        return LlamaForCausalLM(config).eval()

    return make


@pytest.fixture(scope="session")
def model_dir(
    make_model: Callable[[int], LlamaForCausalLM],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A model with random weights."""
    folder = tmp_path_factory.mktemp("random") / "tiny"
    make_model(0).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def agent_dir(
    make_model: Callable[[int], LlamaForCausalLM],
    tokenizer: PreTrainedTokenizerFast,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """A model that has learned one session by heart: two tool calls, then a last word."""
    model = make_model(1)
    ids: list[int] = []
    labels: list[int] = []
    for reply, result in zip(REPLIES, [None, *RESULTS], strict=True):
        news = [TASK] if result is None else [{"role": "tool", "content": result}]
        tools = TOOLS if result is None else None
        prompt = tokenizer.apply_chat_template(news, tools=tools, tokenize=False, add_generation_prompt=True)
        prompt_ids = tokenizer(prompt if result is None else f"\n{prompt}")["input_ids"]
        reply_ids = tokenizer(f"{reply}<|im_end|>")["input_ids"]
        ids += prompt_ids + reply_ids
        labels += [-100] * len(prompt_ids) + reply_ids
    _learn(model, ids, labels)
    folder = tmp_path_factory.mktemp("agent") / "agent"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _learn(model: LlamaForCausalLM, ids: list[int], labels: list[int]) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(400):
        loss = model(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
        if loss < 0.01:
            return
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    pytest.fail(f"the tiny model did not learn its session: loss {loss:.4f}")


class Server:
    """A policy server in this process, and a client for it."""

    def __init__(self, scheduler: Scheduler, client: httpx.AsyncClient, api: Api) -> None:
        self.scheduler, self.client, self.api = scheduler, client, api

    async def post(self, **body: Any) -> httpx.Response:
        return await self.client.post("/chat/completions", json={"messages": [TASK], **body})

    async def chat(self, **body: Any) -> dict[str, Any]:
        reply = await self.post(logprobs=True, return_token_ids=True, **body)
        assert reply.status_code == 200, reply.text
        return reply.json()


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Any]:
    """`async with start(folder) as server`."""

    @asynccontextmanager
    async def start(folder: Path, **options: Any) -> AsyncIterator[Server]:
        policy = load_policy(folder, dtype="float32", max_model_len=None, threads=1)
        scheduler = Scheduler(policy.model, policy.eos_ids, **options)
        api = Api(scheduler, policy.template, model=policy.name, max_model_len=policy.max_model_len)
        socket = tmp_path / f"{id(api):x}.sock"
        transport = httpx.AsyncHTTPTransport(uds=str(socket))
        try:
            async with (
                serving(api.app(), [unix_listener(socket)]),
                httpx.AsyncClient(transport=transport, base_url="http://policy/v1", timeout=60) as client,
            ):
                yield Server(scheduler, client, api)
        finally:
            scheduler.close()

    return start


@pytest.fixture(scope="session")
def expected() -> Callable[..., list[float]]:
    """Log-probabilities of a reply's tokens from one plain forward pass."""

    def expected(model: LlamaForCausalLM, reply: dict[str, Any], temperature: float = 1.0) -> list[float]:
        prompt, sampled = reply["prompt_token_ids"], reply["choices"][0]["token_ids"]
        ids = torch.tensor([prompt + sampled])
        with torch.no_grad():
            logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
        return torch.log_softmax(logits / temperature, -1).gather(1, ids[0, len(prompt) :, None])[:, 0].tolist()

    return expected
