"""docs/agents.md says what the adapters declare, and adapters stay small."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LARGE = {"opencode": 150, "aider": 150}
"""Bounds of the first two adapters; every other one stays under 120 lines."""


def test_the_page_is_what_the_adapters_declare() -> None:
    spec = importlib.util.spec_from_file_location("lr_docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert generate.PAGE.read_text(encoding="utf-8") == generate.page(), "docs/agents.md is not current: run `make docs`"
    assert {"opencode", "aider", "nop", "oracle", "function"} <= {adapter.name for adapter in generate.shipped()}


@pytest.mark.parametrize("folder", sorted(ROOT.glob("adapters/*/src/*")), ids=lambda folder: folder.parts[-3])
def test_an_adapter_is_small(folder: Path) -> None:
    name, lines = folder.parts[-3], 0
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        text = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        lines += sum(bool(line) and not line.startswith("#") for line in text)
    print(f"{name}: {lines} lines")
    assert lines < LARGE.get(name, 120), f"{name} has {lines} lines that are neither blank nor comments"
