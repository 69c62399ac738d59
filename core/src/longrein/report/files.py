"""What a session changed in its workspace: unified diffs against the files that it began with."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

from attrs import evolve, frozen

from longrein.report.text import LIMIT, cut

MAX_FILES = 200
"""Files of a workspace that the page shows; changed ones come first."""
MAX_LINES = 2_000
"""A file with more lines is shown as it ended and not compared: comparing takes time with the square of its length."""

Change = Literal["added", "changed", "same", "missing", "final"]
ORDER: tuple[Change, ...] = ("changed", "added", "final", "missing", "same")


@frozen
class FileChange:
    """One file of a final workspace."""

    path: str
    change: Change
    """`missing`: the session began with it, and it is not among the files that were kept; `final`: what it began with is not known."""
    form: Literal["diff", "text", "none"]
    """How `body` is to be read."""
    body: str = ""
    note: str = ""


def changes(before: Mapping[str, str] | None, after: Mapping[str, bytes], *, where: str) -> tuple[list[FileChange], int]:
    """Return what became of each file, changed ones first, and how many files are left out.

    Args:
        before: path to text at the start of the session; None when that is not known.
        after: path to content at its end.
        where: the archive that has the whole files, for people.
    """
    start = before or {}
    found = [_change(path, start.get(path), after.get(path), where) for path in sorted({*start, *after})]
    if before is None:
        found = [evolve(change, change="final") for change in found]
    found.sort(key=lambda change: ORDER.index(change.change))
    return found[:MAX_FILES], max(0, len(found) - MAX_FILES)


def _change(path: str, old: str | None, content: bytes | None, where: str) -> FileChange:
    if content is None:
        return FileChange(path, "missing", "none")
    if old is not None and content == old.encode("utf-8", "surrogatepass"):
        return FileChange(path, "same", "none")
    kind: Change = "added" if old is None else "changed"
    text = _text(content)
    if text is None:
        return FileChange(path, kind, "none", note=f"{len(content):,} bytes, not text")
    if old is None:
        return FileChange(path, kind, "text", cut(text, where=where))
    if max(len(old), len(text)) > LIMIT or max(old.count("\n"), text.count("\n")) > MAX_LINES:
        return FileChange(path, kind, "text", cut(text, where=where), "too long to compare here: the file as it ended")
    lines = difflib.unified_diff(old.split("\n"), text.split("\n"), "at the start", "at the end", lineterm="")
    return FileChange(path, kind, "diff", "\n".join(lines))


def _text(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def as_json(change: FileChange) -> dict[str, Any]:
    """Return a change as the page reads it."""
    return {"path": change.path, "change": change.change, "form": change.form, "body": change.body, "note": change.note}
