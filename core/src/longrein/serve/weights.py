"""Weights from the trainer to the policy server, as safetensors files renamed into place."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

from longrein.errors import ServeError
from longrein.serve.generations import GENERATIONS


def write_weights(named_tensors: Iterable[tuple[str, torch.Tensor]], folder: Path, version: int) -> Path:
    """Write one generation and delete all but the two newest.

    Args:
        named_tensors: parameter names as in the model's state dict; names that share memory (tied embeddings) are written once.
        folder: the server's weights folder (`ServerProcess.weights`).
        version: the policy version, part of the file's name.

    Returns:
        The file, complete: it is renamed into place.
    """
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in named_tensors:
        held = tensor.detach().cpu().contiguous()
        # Only tensors still held are compared: the address of one that was freed may come back with other contents.
        if not any(held.data_ptr() == other.data_ptr() and held.shape == other.shape for other in tensors.values()):
            tensors[name] = held
    if not tensors:
        raise ServeError(f"no weights to write for version {version}")
    path = folder / f"version-{version:08d}.safetensors"
    partial = folder / f".{path.name}.partial"
    save_file(tensors, partial)
    partial.rename(path)
    _tidy(folder)
    return path


def offer_weights(path: Path, folder: Path) -> Path:
    """Put a generation that was written for one server into the folder of another, as a second name of the same bytes where that can be."""
    if path.parent == folder:
        return path
    partial, offered = folder / f".{path.name}.partial", folder / path.name
    try:
        os.link(path, partial)
    except OSError:  # another file system: one of the two found no room in shared memory
        shutil.copyfile(path, partial)
    partial.rename(offered)
    _tidy(folder)
    return offered


def _tidy(folder: Path) -> None:
    for old in sorted(folder.glob("version-*.safetensors"))[:-GENERATIONS]:
        old.unlink()


def load_into(model: Any, path: Path) -> None:
    """Copy a file's weights over a model's, all or nothing.

    Raises:
        ServeError: the file cannot be read, names differ from the model's, or shapes or values are wrong; the model is unchanged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        new = load_file(path, device=str(model.device))
    except (OSError, SafetensorError) as error:
        raise ServeError(f"cannot read weights from {path}: {error}; the old weights stay") from error
    state = model.state_dict()
    if problem := _problem(state, new):
        raise ServeError(f"weights in {path.name} do not fit the served model: {problem}; the old weights stay")
    with torch.no_grad():
        for name, tensor in new.items():
            state[name].copy_(tensor)


def _problem(state: dict[str, torch.Tensor], new: dict[str, torch.Tensor]) -> str | None:
    if unknown := sorted(set(new) - set(state)):
        return f"unknown name {unknown[0]!r} ({len(unknown)} in all)"
    given = {state[name].data_ptr() for name in new}
    if missing := sorted(name for name, tensor in state.items() if tensor.data_ptr() not in given):
        return f"{missing[0]!r} is missing ({len(missing)} in all)"
    for name, tensor in new.items():
        if tensor.shape != state[name].shape:
            return f"{name!r} has shape {tuple(tensor.shape)}, expected {tuple(state[name].shape)}"
        if not torch.isfinite(tensor).all():
            return f"{name!r} has values that are not finite"
    return None
