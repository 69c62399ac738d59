"""What the grader tells a box about its program: made where it costs no fork anything."""

from __future__ import annotations

import marshal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

BOX = "/box"
"""Where a program's folders are, in namespaces."""
HEAD_LENGTH = 8
# fmt: off
AHEAD = frozenset((
    "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "heapq", "io",
    "itertools", "json", "math", "numpy", "operator", "pandas", "queue", "random", "re", "statistics", "string", "threading",
    "time", "typing",
))
# fmt: on
"""Modules that a worker imports before it forks the cases when the program does. They start no threads and keep no open files."""


def pack(files: Mapping[str, bytes], *, kind: str, fn_name: str | None, folder: str) -> bytes:
    """Return a program for `Init.load`: the length of a head, the head, and the files' contents.

    Args:
        files: path below the working folder to content; holds solution.py.
        folder: for the working folder and that of temporary files.
    """
    request = {"kind": kind, "fn_name": fn_name, "own": _own(files)}
    sizes = [(f"{folder}/work/{name}", len(content)) for name, content in files.items()]
    head = marshal.dumps((request, _folders(folder, files), sizes), 2)
    return b"".join([len(head).to_bytes(HEAD_LENGTH, "little"), head, *files.values()])


def imported_ahead(files: Mapping[str, bytes], *, kind: str) -> list[str]:
    """Return what a worker is to import before it takes this program.

    Nothing that it imports itself if its folder has modules of its own, which come first; json sends the value of a call out.
    """
    its = set() if _own(files) else _imported(files["solution.py"]) & AHEAD
    return sorted(its | {"json"} if kind == "call" else its)


def _own(files: Mapping[str, bytes]) -> set[str]:
    """Return the names of modules in the working folder."""
    names = {path.partition(".")[0].removesuffix("/__init__") for path in files if path.endswith((".py", ".pyc", ".so"))}
    return {name for name in names if "/" not in name} - {"solution"}


def _folders(folder: str, files: Mapping[str, bytes]) -> dict[str, set[str]]:
    """Return the names that each folder in `folder` is to hold, outer ones first."""
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
    return folders


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
