"""Key-value states of finished work, found again by token prefix."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import torch
from attrs import frozen

States = list[tuple[torch.Tensor, torch.Tensor]]


@frozen(eq=False)
class _Entry:
    ids: np.ndarray
    states: States

    @property
    def n_bytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.states)


class PrefixCache:
    """Least recently used token prefixes with their states, for one version of the weights.

    Args:
        max_bytes: memory that the states may take.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.n_bytes = self.n_tokens = 0
        self._entries: OrderedDict[int, _Entry] = OrderedDict()
        self._next = 0

    def longest(self, ids: Sequence[int]) -> tuple[int, States]:
        """Return how many leading tokens of `ids` are known, and states that begin with them (0 and [] when none)."""
        wanted, best, found = np.asarray(ids), 0, None
        for key, entry in self._entries.items():
            n = _common(entry.ids, wanted)
            if n > best:
                best, found = n, key
        if found is None:
            return 0, []
        self._entries.move_to_end(found)
        return best, self._entries[found].states

    def add(self, ids: Sequence[int], states: States) -> None:
        """Hold the states of `ids`; entries that are a prefix of it go, then the least recently used."""
        new = np.asarray(ids)
        for key in [key for key, entry in self._entries.items() if _common(entry.ids, new) == len(entry.ids)]:
            self._drop(key)
        entry = self._entries[self._next] = _Entry(new, states)
        self._next += 1
        self.n_tokens += len(new)
        self.n_bytes += entry.n_bytes
        while self.n_bytes > self.max_bytes:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget everything: the weights changed."""
        self._entries.clear()
        self.n_bytes = self.n_tokens = 0

    def _drop(self, key: int) -> None:
        entry = self._entries.pop(key)
        self.n_tokens -= len(entry.ids)
        self.n_bytes -= entry.n_bytes


def _common(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n
