"""For authors of adapters, verifiers and sandboxes: contracts to subclass in tests, and a scripted policy."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from longrein.testing.adapter import AdapterContract
    from longrein.testing.sandbox import SandboxContract
    from longrein.testing.verifier import Sample, VerifierContract

__all__ = ["AdapterContract", "Sample", "SandboxContract", "VerifierContract"]
_MODULES = {"AdapterContract": "adapter", "Sample": "verifier", "SandboxContract": "sandbox", "VerifierContract": "verifier"}


def __getattr__(name: str) -> Any:
    """Load a contract on first use: they load the engine, which a test of labels does not need."""
    if name in _MODULES:
        return getattr(import_module(f"longrein.testing.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'longrein.testing' has no attribute {name!r}")
