"""Key-value memory of the live sequences: one row for each, left-aligned, in tensors shared by the whole batch."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicLayer

BLOCK = 256
"""Rows grow by so many tokens at a time."""


class _Layer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """One attention layer's rows, of shape (rows, heads, capacity, head_dim)."""

    keys: torch.Tensor
    values: torch.Tensor

    def __init__(self, batch: BatchKV) -> None:
        super().__init__()
        self.batch = batch

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the new states where the batch says they belong, and return all that attention may look at."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        self.keys = self._put(self.keys, key_states)
        self.values = self._put(self.values, value_states)
        rows, end = self.batch.rows, self.batch.end
        return self.keys[rows, :, :end], self.values[rows, :, :end]

    def _put(self, store: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        batch = self.batch
        n_rows, n_tokens = batch.n_rows, batch.n_tokens
        if store.dim() != 4 or store.shape[0] < n_rows or store.shape[2] < n_tokens:
            grown = new.new_zeros((n_rows, new.shape[1], n_tokens, new.shape[3]))
            if store.dim() == 4:
                grown[: store.shape[0], :, : store.shape[2]] = store
            store = grown
        if batch.index is None:
            store[batch.rows, :, batch.end - new.shape[2] : batch.end] = new
        else:
            store[batch.index, :, batch.positions] = new[:, :, 0]
        return store


class BatchKV(Cache):  # type: ignore[misc]  # transformers is untyped here
    """Rows for many sequences; the next forward either extends one row or adds one token to each of the first n."""

    def __init__(self, n_layers: int) -> None:
        super().__init__(layers=[_Layer(self) for _ in range(n_layers)])
        self.n_rows = 0
        self.n_tokens = 0
        self.rows = slice(0, 0)
        self.end = 0
        self.index: torch.Tensor | None = None
        self.positions: torch.Tensor | None = None

    def extend(self, row: int, end: int) -> None:
        """Let the next forward fill one row up to `end` tokens."""
        self._reserve(row + 1, end)
        self.rows, self.end, self.index = slice(row, row + 1), end, None

    def step(self, positions: torch.Tensor, end: int) -> None:
        """Let the next forward add one token to each of the first rows, at `positions`; `end` is the longest row then."""
        self._reserve(len(positions), end)
        self.rows, self.end = slice(0, len(positions)), end
        self.index, self.positions = torch.arange(len(positions), device=positions.device), positions

    def _reserve(self, n_rows: int, n_tokens: int) -> None:
        if n_rows > self.n_rows:
            self.n_rows = max(n_rows, 2 * self.n_rows)
        if n_tokens > self.n_tokens:
            self.n_tokens = -(-n_tokens // BLOCK) * BLOCK

    def read(self, row: int, n_tokens: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return copies of a row's first tokens, one pair of (heads, tokens, head_dim) for each layer."""
        return [(layer.keys[row, :, :n_tokens].clone(), layer.values[row, :, :n_tokens].clone()) for layer in self.layers]

    def write(self, row: int, states: list[tuple[torch.Tensor, torch.Tensor]], n_tokens: int) -> None:
        """Put the first tokens of stored states into a row."""
        self.extend(row, n_tokens)
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            layer.update(keys[None, :, :n_tokens], values[None, :, :n_tokens])

    def move(self, source: int, target: int, n_tokens: int) -> None:
        """Copy a row's first tokens over another row."""
        for layer in self.layers:
            layer.keys[target, :, :n_tokens] = layer.keys[source, :, :n_tokens]
            layer.values[target, :, :n_tokens] = layer.values[source, :, :n_tokens]
