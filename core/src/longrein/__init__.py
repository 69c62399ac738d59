"""longrein trains the model behind coding agents that own their loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longrein.hookspecs import hookimpl

if TYPE_CHECKING:
    from longrein.api import compare, grade, run, train

__version__ = "0.1.0"
__all__ = ["__version__", "compare", "grade", "hookimpl", "run", "train"]


def __getattr__(name: str) -> Any:
    """Load `run`, `compare`, `train` and `grade` on first use, so that importing longrein stays light."""
    if name in ("compare", "grade", "run", "train"):
        from longrein import api

        return getattr(api, name)
    raise AttributeError(f"module 'longrein' has no attribute {name!r}")
