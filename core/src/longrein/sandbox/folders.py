"""Session folders: filled before a session, read and removed after it. What is read was written by an agent: nothing is followed."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from longrein.errors import SandboxError

MAX_FILES = 10_000
"""Entries looked at in a workspace after a session."""


def write_files(files: Mapping[str, str], roots: Mapping[PurePosixPath, Path], default: PurePosixPath) -> None:
    """Write `files` into the host folders behind a sandbox's folders.

    Args:
        files: path (relative to `default`, or absolute below one of `roots`) to text.
        roots: folder inside the sandbox to host folder.
        default: the root of relative paths.

    Raises:
        SandboxError: a path leaves the roots.
    """
    for name, text in files.items():
        inside = default / name
        root = next((root for root in roots if inside.is_relative_to(root)), None)
        if root is None or ".." in inside.parts:
            raise SandboxError(f"cannot place file {name!r}: only paths below {', '.join(map(str, roots))} can be written")
        path = roots[root] / inside.relative_to(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def collect(folder: Path, limit_mb: int) -> tuple[dict[str, bytes], int]:
    """Read the regular files below `folder`, smallest first until `limit_mb` is full, so that junk cannot crowd out a solution.

    Returns:
        Path to content, and how many files were left out (too much, unreadable, not UTF-8 names; links and devices are not counted).
    """
    found, skipped, budget = _regular_files(folder), 0, limit_mb << 20
    kept: dict[str, bytes] = {}
    for size, name in sorted(found):
        content = _read(folder / name, budget) if size <= budget and _is_utf8(name) else None
        if content is None:
            skipped += 1
        else:
            kept[name] = content
            budget -= len(content)
    return dict(sorted(kept.items())), skipped


def _regular_files(folder: Path) -> list[tuple[int, str]]:
    """Return size and path of the regular files below `folder`. Not os.walk: up to Python 3.11 a thousand nested folders end it."""
    found: list[tuple[int, str]] = []
    waiting, seen = [""], 0
    while waiting and seen <= MAX_FILES:
        base = waiting.pop()
        try:
            with os.scandir(folder / base) as entries:
                inside = sorted(entries, key=lambda entry: entry.name, reverse=True)
        except OSError:  # closed to us, or its path is longer than the system takes
            continue
        seen += len(inside)
        for entry in inside:
            name = f"{base}/{entry.name}" if base else entry.name
            if entry.is_dir(follow_symlinks=False):
                waiting.append(name)
            elif entry.is_file(follow_symlinks=False):
                found.append((entry.stat(follow_symlinks=False).st_size, name))
    return found


def _read(path: Path, budget: int) -> bytes | None:
    try:
        content = read_left(path, budget + 1)
    except OSError:
        return None
    return content if content is not None and len(content) <= budget else None


def read_left(path: Path, limit: int) -> bytes | None:
    """Return the first `limit` bytes of what a program of an agent may have put at `path`; None when that is no regular file.

    Raises:
        OSError: it is missing, a link, or cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def _is_utf8(name: str) -> bool:
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def remove(folder: Path) -> None:
    """Remove `folder` whatever an agent made of it: closed folders, nesting too deep for Python's own recursion."""
    if not folder.exists():
        return
    try:
        shutil.rmtree(folder, onerror=_open_and_retry)
    except (OSError, RecursionError):
        subprocess.run(["rm", "-rf", "--", str(folder)], check=False, stderr=subprocess.DEVNULL)


def _open_and_retry(function: object, path: str, _info: object) -> None:
    for target in (Path(path).parent, Path(path)):
        if not target.is_symlink() and target.is_dir():
            target.chmod(0o700)
    if Path(path).is_dir() and not Path(path).is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        Path(path).unlink(missing_ok=True)
