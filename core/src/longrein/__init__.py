"""longrein trains the model behind coding agents that own their loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from longrein.hookspecs import hookimpl

if TYPE_CHECKING:
    from longrein.api import grade, run, train

__version__ = "0.1.0"
__all__ = ["__version__", "grade", "hookimpl", "run", "train"]


def __getattr__(name: str) -> Any:
    """Load `run`, `train` and `grade` on first use, so that importing longrein stays light."""
    if name in ("grade", "run", "train"):
        from longrein import api

        return getattr(api, name)
    raise AttributeError(f"module 'longrein' has no attribute {name!r}")
