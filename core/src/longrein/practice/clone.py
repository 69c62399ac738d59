"""Make and train the practice model on transcripts."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from longrein.practice.transcripts import Row

if TYPE_CHECKING:
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

MAX_MODEL_LEN = 4096


@frozen
class Schedule:
    """How long and how fast to train. Steps and not seconds: a busy machine takes longer and makes as good a model."""

    steps: int
    batch: int
    learning_rate: float = 2e-3
    warm_up: int = 40


STATEMENTS = Schedule(steps=300, batch=24)
"""First the reply to a bare statement: in so short a context the model soon learns to copy."""
SESSIONS = Schedule(steps=700, batch=12)
"""Then whole sessions."""


def new_model(tokenizer: PreTrainedTokenizerFast, *, seed: int) -> LlamaForCausalLM:
    """Return an untrained Llama of about 1.1 million parameters."""
    import torch
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    # With the usual 0.02 a net of this size takes three times as long to find out how to copy from its prompt.
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=160,
            intermediate_size=416,
            num_hidden_layers=3,
            num_attention_heads=5,  # of 32 values each, which every engine has kernels for
            num_key_value_heads=5,
            max_position_embeddings=MAX_MODEL_LEN,
            tie_word_embeddings=True,
            initializer_range=0.05,
            **ends,
        )
    )
    model.generation_config = GenerationConfig(do_sample=True, temperature=1.0, top_k=0, top_p=1.0, **ends)
    return model


def train(model: Any, rows: Sequence[Row], schedule: Schedule, *, seed: int, log: Callable[[str], None]) -> float:
    """Train on the marked tokens and return the mean loss of the last batches (nats a token)."""
    import torch
    from torch.nn.functional import cross_entropy

    optimizer = torch.optim.AdamW(model.parameters(), lr=schedule.learning_rate, betas=(0.9, 0.98), weight_decay=0.01)
    rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, schedule))
    model.train()
    losses = []
    for step, batch in zip(range(schedule.steps), _batches(rows, schedule.batch, random.Random(seed)), strict=False):
        ids, mask = _padded(batch)
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
        learnt = mask[:, 1:]
        loss = cross_entropy(model.lm_head(hidden[learnt]), ids[:, 1:][learnt])
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
        losses.append(loss.item())
        if (step + 1) % 100 == 0:
            log(f"step {step + 1} of {schedule.steps}, loss {sum(losses[-50:]) / 50:.3f}")
    model.eval()
    return sum(losses[-50:]) / len(losses[-50:])


def _rate(step: int, schedule: Schedule) -> float:
    done = step / schedule.steps
    return min(1.0, (step + 1) / schedule.warm_up) * 0.5 * (1 + math.cos(math.pi * done))


def _batches(rows: Sequence[Row], size: int, rng: random.Random) -> Iterator[list[Row]]:
    """Yield batches of rows of similar length for ever."""
    ordered = sorted(rows, key=lambda row: len(row.ids))
    batches = [ordered[at : at + size] for at in range(0, len(ordered), size)]
    while True:
        rng.shuffle(batches)
        yield from batches


def _padded(batch: Sequence[Row]) -> tuple[Any, Any]:
    import torch

    longest = max(len(row.ids) for row in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.long)
    mask = torch.zeros(len(batch), longest, dtype=torch.bool)
    for at, row in enumerate(batch):
        ids[at, : len(row.ids)] = torch.tensor(row.ids)
        mask[at, : len(row.mask)] = torch.tensor(row.mask, dtype=torch.bool)
    return ids, mask
