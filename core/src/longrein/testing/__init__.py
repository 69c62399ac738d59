"""For authors of adapters, verifiers and sandboxes: contracts to subclass in tests, and a scripted policy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longrein.testing.adapter import AdapterContract

__all__ = ["AdapterContract"]


def __getattr__(name: str) -> Any:
    """Load a contract on first use: they load the engine, which a test of labels does not need."""
    if name == "AdapterContract":
        from longrein.testing.adapter import AdapterContract

        return AdapterContract
    raise AttributeError(f"module 'longrein.testing' has no attribute {name!r}")
