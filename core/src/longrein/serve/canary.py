"""The canary: the server samples a short reply, the trainer scores the same tokens; equal weights give equal log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from longrein.capture.endpoint import PolicyEndpoint
from longrein.errors import ServeError

PROMPT = "Count from one to ten."
N_TOKENS = 32


class CanarySample(NamedTuple):
    """What the policy server sampled, with its natural log-probabilities at temperature 1."""

    prompt_ids: list[int]
    sampled_ids: list[int]
    logprobs: list[float]
    version: int | None
    """None from a server that does not state its version."""


def sample_canary(endpoint: PolicyEndpoint, *, seed: int = 0, timeout_s: float = 120.0) -> CanarySample:
    """Ask the policy server for a short reply to a fixed prompt.

    Raises:
        ServeError: the server refused, did not answer, or returned no ids or log-probabilities.
    """
    import httpx

    body = {
        "model": endpoint.model,
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": N_TOKENS,
        "temperature": 1.0,
        "seed": seed,
        "logprobs": True,
        "top_logprobs": 0,
        "return_token_ids": True,
        "ignore_eos": True,  # a policy that has learned to answer in a word would leave too few tokens to compare
    }
    headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
    transport = httpx.HTTPTransport(uds=str(endpoint.uds)) if endpoint.uds else None
    try:
        with httpx.Client(transport=transport, timeout=timeout_s, headers=headers) as client:
            reply = client.post(f"{endpoint.url}/chat/completions", json=body)
    except httpx.HTTPError as error:
        raise ServeError(f"the policy server did not answer the canary: {type(error).__name__}: {error}") from error
    if reply.status_code != 200:
        raise ServeError(f"the policy server refused the canary with status {reply.status_code}: {reply.text[:300]}")
    return _sample(reply.json())


def _sample(reply: dict[str, Any]) -> CanarySample:
    choice = reply["choices"][0]
    logprobs = [entry["logprob"] for entry in (choice.get("logprobs") or {}).get("content") or ()]
    prompt_ids, sampled_ids = reply.get("prompt_token_ids") or [], choice.get("token_ids") or []
    if not prompt_ids or not sampled_ids or len(sampled_ids) != len(logprobs):
        raise ServeError(
            f"the canary's reply cannot be scored: {len(prompt_ids)} prompt ids, {len(sampled_ids)} sampled ids,"
            f" {len(logprobs)} log-probabilities"
        )
    return CanarySample(prompt_ids, sampled_ids, logprobs, (reply.get("longrein") or {}).get("version_last"))


def score(model: Any, prompt_ids: Sequence[int], sampled_ids: Sequence[int]) -> list[float]:
    """Return the model's natural log-probabilities of the sampled tokens at temperature 1, from one plain forward pass in eval mode."""
    import torch

    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            ids = torch.tensor([[*prompt_ids, *sampled_ids]], device=model.device)
            logits = model(input_ids=ids, use_cache=False).logits[0, len(prompt_ids) - 1 : -1].float()
            chosen = torch.log_softmax(logits, dim=-1).gather(1, ids[0, len(prompt_ids) :, None])
    finally:
        model.train(training)
    scores: list[float] = chosen[:, 0].tolist()
    return scores
