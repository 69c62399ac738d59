"""What the grader tells a box about its program: made where it costs no fork anything."""

from __future__ import annotations

import marshal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

BOX = "/box"
"""Where a program's folders are, in namespaces."""
# fmt: off
AHEAD = frozenset((
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "heapq", "io",
    "itertools", "json", "math", "numpy", "operator", "pandas", "queue", "random", "re", "statistics", "string", "threading",
    "time", "typing",
))
# fmt: on
"""Modules that the init imports before it forks the cases when the program does. They start no threads and keep no open files."""


def pack(files: Mapping[str, bytes], *, kind: str, fn_name: str | None, folder: str) -> bytes:
    """Return a program for `Init.load`.

    Args:
        files: path below the working folder to content; holds solution.py.
        folder: for the working folder and that of temporary files.
    """
    names = {path.partition(".")[0].removesuffix("/__init__") for path in files if path.endswith((".py", ".pyc", ".so"))}
    own = {name for name in names if "/" not in name} - {"solution"}
    request = {"kind": kind, "fn_name": fn_name, "own": own, "ahead": _imported(files["solution.py"]) & AHEAD}
    return marshal.dumps((request, *_tree(folder, files)), 2)


def _tree(folder: str, files: Mapping[str, bytes]) -> tuple[dict[str, set[str]], dict[str, bytes]]:
    """Return what `folder` is to hold: the names in each folder, outer ones first, and the content of each file, by path."""
    work = f"{folder}/work"
    folders: dict[str, set[str]] = {folder: {"tmp", "work"}, f"{folder}/tmp": set(), work: set()}
    for name in files:
        above = work
        *parts, last = name.split("/")
        for part in parts:
            folders[above].add(part)
            above = f"{above}/{part}"
            folders.setdefault(above, set())
        folders[above].add(last)
    return folders, {f"{work}/{name}": content for name, content in files.items()}


def _imported(source: bytes) -> set[str]:
    """Return the top-level modules that lines without indentation name in an import."""
    found = set()
    for line in source.splitlines():
        word, _, rest = line.partition(b" ")
        if word == b"import":
            for part in rest.split(b","):
                found.add(part.split()[0].partition(b".")[0] if part.split() else b"")
        elif word == b"from" and rest:
            found.add(rest.split()[0].partition(b".")[0] if rest.split() else b"")
    return {name.decode("ascii", "replace") for name in found}
