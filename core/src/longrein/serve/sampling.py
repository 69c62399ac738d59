"""How the next token is drawn, and the log-probability it is drawn with."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from attrs import frozen


@frozen
class Sampling:
    """One request's sampling. `temperature` 0 takes the most likely token and reports its probability at temperature 1."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    """Below 1: off."""
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int = 1
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int = 0
    """Alternatives reported with each token."""


def log_distribution(logits: torch.Tensor, samplings: Sequence[Sampling]) -> torch.Tensor:
    """Return the log-probabilities (rows, vocabulary) that each row is sampled with, in float32."""
    scale = [s.temperature or 1.0 for s in samplings]
    logits = logits.float()
    if any(value != 1.0 for value in scale):
        logits = logits / torch.tensor(scale, device=logits.device)[:, None]
    logprobs = torch.log_softmax(logits, dim=-1)
    for row, sampling in enumerate(samplings):
        if sampling.top_k > 0 or sampling.top_p < 1.0 or sampling.min_p > 0.0:
            logprobs[row] = torch.log_softmax(_truncated(logprobs[row], sampling), dim=-1)
    return logprobs


def _truncated(logprobs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    ordered, order = logprobs.sort(descending=True)
    keep = torch.ones_like(ordered, dtype=torch.bool)
    if sampling.top_k > 0:
        keep[sampling.top_k :] = False
    if sampling.top_p < 1.0:
        probabilities = ordered.exp()
        # The most likely token always stays; another one stays while those before it have not reached top_p.
        keep[1:] &= (probabilities.cumsum(0) < sampling.top_p)[:-1]
    keep &= ordered >= ordered[0] + (math.log(sampling.min_p) if sampling.min_p > 0.0 else float("-inf"))
    return logprobs.masked_fill(~torch.zeros_like(keep).scatter(0, order, keep), float("-inf"))


def draw(logprobs: torch.Tensor, samplings: Sequence[Sampling], rngs: Sequence[random.Random]) -> list[int]:
    """Draw one token for each row: the most likely at temperature 0, else by inverse distribution with the row's own generator.

    A seed therefore gives the same draws whoever shares the batch.
    """
    cumulative = logprobs.double().exp_().cumsum_(-1)
    total = cumulative[:, -1:]
    uniform = torch.tensor([[rng.random()] for rng in rngs], dtype=torch.float64, device=logprobs.device)
    # Rounding must not reach the total: past it lie only tokens of probability 0.
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    tokens: list[int] = torch.searchsorted(cumulative, target, right=True)[:, 0].tolist()
    if any(s.temperature == 0.0 for s in samplings):
        best = logprobs.argmax(-1).tolist()
        tokens = [b if s.temperature == 0.0 else t for s, b, t in zip(samplings, best, tokens, strict=True)]
    return tokens
