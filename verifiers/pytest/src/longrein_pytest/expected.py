"""Which tests there are, read from the hidden files without running anything."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


def expected_tests(folder: Path) -> list[str]:
    """Return the tests of every test_*.py and *_test.py below `folder`, as pytest names them without parameters.

    Raises:
        SyntaxError, ValueError: a file is not Python.
    """
    files = sorted({*folder.rglob("test_*.py"), *folder.rglob("*_test.py")})
    return [f"{file.relative_to(folder).as_posix()}::{name}" for file in files for name in _names(ast.parse(file.read_bytes()).body, "")]


def _names(body: list[ast.stmt], prefix: str) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test"):
            yield prefix + node.name
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _names(node.body, f"{prefix}{node.name}::")
        elif isinstance(node, (ast.If, ast.Try, ast.With)):  # a test that is only sometimes there has to be there
            yield from _names([child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)], prefix)
