"""The folder through which weights go to a policy server: files renamed into place, the newest two kept. Needs no torch."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
GENERATIONS = 2
"""Files kept: the newest, and the one before it that a slow reader may still have open."""
WEIGHTS_LINK = "weights"
"""Link beside the server's sockets to the weights folder: it is removed with the run's private folder also when all were killed."""


def new_folder(n_bytes: int, *, fallback: Path) -> Path:
    """Make a private folder for weights: in shared memory where it has room, else below `fallback`.

    Args:
        n_bytes: size of one generation.
        fallback: a folder on disk.
    """
    # One file more than is kept: the new one is written beside the old ones.
    fits = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > (GENERATIONS + 1) * n_bytes
    return Path(tempfile.mkdtemp(prefix="longrein-weights-", dir=SHARED_MEMORY if fits else fallback))


def newest(folder: Path) -> tuple[Path, int] | None:
    """Return the newest generation in a weights folder with its version, or None when there is none."""
    files = sorted(folder.glob("version-*.safetensors"))
    return (files[-1], int(files[-1].stem.removeprefix("version-"))) if files else None


def stored_bytes(model: Path) -> int:
    """Return at least the size of one version: a trainer may send twice the bytes of a checkpoint in 16 bits."""
    return 2 * sum(path.stat().st_size for path in model.glob("*.safetensors"))
