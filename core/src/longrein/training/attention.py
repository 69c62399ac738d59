"""TRL's tree attention without its Hopper kernel: the same function over the same index, with PyTorch's SDPA."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention


def tree_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    tree_kv_index: torch.Tensor,
    tree_cu_seqlens_q: torch.Tensor,
    tree_cu_seqlens_k: torch.Tensor,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Attend from every segment of a packed prefix tree to its own path.

    Segment s holds the queries cu_q[s]:cu_q[s+1]; its path holds the keys tree_kv_index[cu_k[s]:cu_k[s+1]], root
    first, and ends with the segment itself: so query i stands at place len(path) - len(segment) + i of the path and sees
    the path up to there.

    Args:
        module: the attention layer.
        query: (1, heads, tokens, size).
        key: (1, key heads, tokens, size).
        value: like `key`.
        attention_mask: unused; the index says it all.
        tree_kv_index: packed position of each key of each path, paths end to end.
        tree_cu_seqlens_q: (segments + 1) ends of the segments.
        tree_cu_seqlens_k: (segments + 1) ends of the paths.
        scaling: factor of the scores; default 1 / sqrt(size).
        sliding_window: how many tokens back a query sees, itself included.
        softcap: scores become softcap * tanh(scores / softcap).

    Returns:
        (1, tokens, heads, size), and None for the weights.
    """
    query, key = query.to(value.dtype), key.to(value.dtype)  # norms of queries and keys leave mixed precision
    ends_q, ends_k = tree_cu_seqlens_q.tolist(), tree_cu_seqlens_k.tolist()
    parts = []
    for q0, q1, k0, k1 in zip(ends_q[:-1], ends_q[1:], ends_k[:-1], ends_k[1:], strict=True):
        path = tree_kv_index[k0:k1]
        k, v = key.index_select(2, path), value.index_select(2, path)
        mask = _visible(q1 - q0, k1 - k0, sliding_window, query.device)
        q = query[:, :, q0:q1]
        if softcap:
            parts.append(_softcapped(q, k, v, mask, scaling, softcap))
        else:
            parts.append(scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scaling, enable_gqa=q.shape[1] != k.shape[1]))
    return torch.cat(parts, dim=2).transpose(1, 2), None


def _visible(n_queries: int, n_keys: int, window: int | None, device: torch.device) -> torch.Tensor:
    """Return (queries, keys): True where a query of the path's last part may look."""
    place = torch.arange(n_keys - n_queries, n_keys, device=device)[:, None]
    keys = torch.arange(n_keys, device=device)[None]
    visible = keys <= place
    return visible & (place - keys < window) if window else visible


def _softcapped(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor, scaling: float | None, softcap: float
) -> torch.Tensor:
    repeats = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scaling is None else scaling)
    scores = (softcap * torch.tanh(scores / softcap)).masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1, dtype=torch.float32).to(v.dtype) @ v


def has_kernel() -> bool:
    """Return True where TRL's own kernel runs: FlashAttention 3 on a Hopper GPU, AITER on ROCm, through `kernels`."""
    if not torch.cuda.is_available() or find_spec("kernels") is None:
        return False
    return torch.version.hip is not None or torch.cuda.get_device_capability() == (9, 0)


def use_sdpa() -> None:
    """Put the SDPA version in the place of TRL's kernel; call it after the trainer is built, which registers its own."""
    from transformers import AttentionInterface
    from trl.experimental.async_grpo.packing import TREE_ATTENTION

    AttentionInterface.register(TREE_ATTENTION, tree_attention)


@contextmanager
def no_cuda_name() -> Iterator[None]:
    """Keep the trainer from asking CUDA for a device's name (for its MFU figures) where there is no CUDA."""
    from trl.experimental.async_grpo import async_grpo_trainer as module

    original: Callable[..., float | None] = module.get_peak_flops_per_device
    if not torch.cuda.is_available():
        module.get_peak_flops_per_device = lambda *_: None
    try:
        yield
    finally:
        module.get_peak_flops_per_device = original
