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


class PrefixCache:
    """Least recently used token prefixes with their states, for one version of the weights.

    Args:
        max_tokens: tokens held at most.
    """

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.n_tokens = 0
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

    def covers(self, ids: Sequence[int]) -> bool:
        """Return True when all of `ids` is held."""
        return self.longest(ids)[0] == len(ids)

    def add(self, ids: Sequence[int], states: States) -> None:
        """Hold the states of `ids`; entries that are a prefix of it go, then the least recently used."""
        new = np.asarray(ids)
        for key in [key for key, entry in self._entries.items() if _common(entry.ids, new) == len(entry.ids)]:
            self._drop(key)
        self._entries[self._next] = _Entry(new, states)
        self._next += 1
        self.n_tokens += len(new)
        while self.n_tokens > self.max_tokens:
            self._drop(next(iter(self._entries)))

    def clear(self) -> None:
        """Forget everything: the weights changed."""
        self._entries.clear()
        self.n_tokens = 0

    def _drop(self, key: int) -> None:
        self.n_tokens -= len(self._entries.pop(key).ids)


def _common(a: np.ndarray, b: np.ndarray) -> int:
    n = min(len(a), len(b))
    differ = a[:n] != b[:n]
    first = int(differ.argmax()) if n else 0
    return first if n and differ[first] else n
