"""Shorten a trace to a bound: all its messages alike first, what was said before what was done; then the middle goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from longrein_ruler.text import shorten, size
from longrein_ruler.traces import Kind, Part

LEAST = 500
"""Bytes that an action may keep when nothing helps but to leave messages out."""
SHARES: Mapping[Kind, float] = {"task": 1.0, "action": 1.0, "result": 0.5, "talk": 0.25}
"""What a message may keep of the bytes that an action may."""
GAP_BYTES = 40
"""More than the note takes that stands for left out messages."""


def digest(parts: Sequence[Part], n_bytes: int) -> str:
    """Return the text of a trace in `n_bytes` at most."""
    whole = "\n".join(part.text for part in parts)
    if size(whole) <= n_bytes:
        return whole
    level, too_much = LEAST, round(n_bytes / min(SHARES.values())) + LEAST
    text = _shortened(parts, level)
    if size(text) > n_bytes:
        return shorten(_without_middle(parts, n_bytes), n_bytes)
    while too_much - level > 10:
        middle = (level + too_much) // 2
        if size(longer := _shortened(parts, middle)) <= n_bytes:
            text, level = longer, middle
        else:
            too_much = middle
    return text


def _shortened(parts: Sequence[Part], level: int) -> str:
    return "\n".join(_short(part, level) for part in parts)


def _short(part: Part, level: int) -> str:
    return shorten(part.text, int(level * SHARES[part.kind]))


def _without_middle(parts: Sequence[Part], n_bytes: int) -> str:
    """Return the texts that fit: actions and results before talk, the end and the start before the middle."""
    texts, last = [_short(part, LEAST) for part in parts], len(parts) - 1
    order = sorted(range(len(parts)), key=lambda i: (parts[i].kind == "talk", min(2 * (last - i), 2 * i + 1)))
    room, kept = n_bytes - GAP_BYTES, set[int]()
    for index in order:
        cost = size(texts[index]) + 1 + GAP_BYTES
        if cost <= room:
            room -= cost
            kept.add(index)
    lines: list[str] = []
    before = -1
    for index in [*sorted(kept), len(parts)]:
        if gone := index - before - 1:
            lines.append(f"[... {gone} messages left out ...]")
        if index < len(parts):
            lines.append(texts[index])
        before = index
    return "\n".join(lines)


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """Return how much of `room` each of several texts gets: what short ones leave goes to the longer ones."""
    given = [0] * len(sizes)
    waiting = sorted(range(len(sizes)), key=lambda i: sizes[i])
    for done, index in enumerate(waiting):
        given[index] = min(sizes[index], room // (len(sizes) - done))
        room -= given[index]
    return given
