"""How far two passes of a judge agree."""

from __future__ import annotations

from collections.abc import Sequence


def agreement(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation of two lists of scores, in [-1, 1]; None where one of them ranks nothing."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return None
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)
