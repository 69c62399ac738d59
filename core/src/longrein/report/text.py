"""Bounds for what agents wrote: a page has to open whatever they printed."""

from __future__ import annotations

import math
from typing import Any

LIMIT = 60_000
"""Characters of one text that the page keeps."""
TAIL = 10_000
"""Of these, the characters kept from the end."""
DEPTH = 40
"""Levels of nesting that the page keeps of a message."""


def cut(text: str, *, where: str) -> str:
    """Return a text of bounded length; what was cut is said in its place, with where the whole text is."""
    left_out = len(text) - LIMIT
    if left_out <= 0:
        return text
    return f"{text[: LIMIT - TAIL]}\n[… cut: {left_out:,} of {len(text):,} characters are only in {where} …]\n{text[-TAIL:]}"


def cut_deep(value: Any, *, where: str, depth: int = DEPTH) -> Any:
    """Return plain data with every text in it bounded, and what is nested too deep named by its type."""
    if isinstance(value, str):
        return cut(value, where=where)
    if isinstance(value, (list, tuple, dict)) and depth == 0:
        return f"[… cut: a nested {type(value).__name__} is only in {where} …]"
    if isinstance(value, dict):
        return {cut(str(key), where=where): cut_deep(item, where=where, depth=depth - 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [cut_deep(item, where=where, depth=depth - 1) for item in value]
    return finite(value)


def finite(value: Any) -> Any:
    """Return a value as it is, and a number that JSON has no form for as its name."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
