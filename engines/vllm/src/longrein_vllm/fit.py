"""Whether a file of weights fits a checkpoint, by names and shapes. Needs neither torch nor vLLM."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

Shapes = Mapping[str, tuple[int, ...]]


def header(path: Path) -> Shapes:
    """Return the names and shapes in a safetensors file, from its first bytes."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        entries = json.loads(file.read(length))
    return {name: tuple(entry["shape"]) for name, entry in entries.items() if name != "__metadata__"}


def misfit(given: Shapes, served: Shapes | None, *, tied: bool) -> str | None:
    """Say what is wrong with the names and shapes given, or return None.

    A tied head may be in one of the two only: some checkpoints have it, and a trainer sends what it shares once.
    """
    if not given:
        return "it has no weights"
    if served is None:
        return None
    heads = {name for name in (*given, *served) if tied and name.endswith("lm_head.weight")}
    if unknown := sorted(given.keys() - served.keys() - heads):
        return f"unknown name {unknown[0]!r} ({len(unknown)} in all)"
    if missing := sorted(served.keys() - given.keys() - heads):
        return f"{missing[0]!r} is missing ({len(missing)} in all)"
    for name in given.keys() & served.keys():
        if given[name] != served[name]:
            return f"{name!r} has shape {given[name]}, expected {served[name]}"
    return None
