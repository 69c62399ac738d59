"""What unit tests share."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder with a path that is short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="lr-") as name:
        yield Path(name)
