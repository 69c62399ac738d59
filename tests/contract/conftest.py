"""The adapter that `longrein new adapter` makes, as it is and with one fault each."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from longrein import templates
from longrein.testing import AdapterContract

Toy = Callable[..., type[AdapterContract]]


MORE = (
    "calls_nobody_else",
    "declared_turn_cap",
    "call_budget",
    "token_budget",
    "idle_timeout",
    "total_timeout",
    "questions",
    "engine_errors",
    "cut_replies",
    "unfinished_replies",
)
"""Checks that need sessions of their own; the others look at the same two."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the long checks of the shipped adapters to `make test-more`."""
    for item in items:
        cls = getattr(item, "cls", None)
        if cls is not None and issubclass(cls, AdapterContract) and item.name.removeprefix("test_") in MORE:
            item.add_marker(pytest.mark.more)


@pytest.fixture
def toy(tmp_path: Path) -> Toy:
    """Return a contract for the template's adapter after (old, new) replacements in the agent's and the adapter's source."""

    def make(agent: tuple[str, str] | None = None, adapter: tuple[str, str] | None = None, **more: Any) -> type[AdapterContract]:
        templates.create("adapter", "toy", tmp_path / "toy")
        folder = tmp_path / "toy" / "src" / "longrein_toy"
        for path, change in ((folder / "agent.py", agent), (folder / "adapter.py", adapter)):
            if change:
                source = path.read_text()
                assert change[0] in source, change[0]
                path.write_text(source.replace(*change))
        adapter_class = _load(folder / "adapter.py").Toy
        return type("TestToy", (AdapterContract,), {"adapter": adapter_class, "patience_s": 2.0, **more})

    return make


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("lr_toy_adapter", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
