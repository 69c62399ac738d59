"""environment/Dockerfile: read for the files that a session begins with. Whatever would have to be built or run is refused."""

from __future__ import annotations

import json
import os
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from attrs import frozen

from longrein.errors import TaskError

PLAIN = ("python", "debian", "ubuntu")
"""Base images that this machine stands in for, with its own programs and versions."""
WITHOUT_EFFECT = ("CMD", "EXPOSE", "LABEL", "MAINTAINER")
"""Instructions that change nothing for a session: Harbor replaces the command too."""
COMPOSE = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
TAKEN = {
    *("bin", "boot", "dev", "etc", "home", "lib", "lib32", "lib64", "libx32", "media", "mnt", "opt", "proc", "root", "run", "sbin"),
    *("srv", "sys", "tmp", "usr", "var", "tests", "logs", "solution"),
}
"""Folders of the root that a working folder cannot be."""


@frozen
class Image:
    """What a session begins with."""

    workdir: str
    """The working folder, as instruction, tests and solution name it."""
    files: Mapping[str, str]
    """Path below it to text."""


def read_image(folder: Path) -> Image:
    """Read the environment of a task.

    Args:
        folder: its `environment`.

    Raises:
        TaskError: a session cannot begin so on this machine; the message is the reason.
    """
    for name in COMPOSE:
        if (folder / name).exists():
            raise TaskError(f"its environment is made of services ({name})")
    if not (folder / "Dockerfile").is_file():
        raise TaskError("it has no environment/Dockerfile; images are not fetched here")
    if (folder / ".dockerignore").exists():
        raise TaskError("its environment has a .dockerignore, which is not read here")
    reader = _Reader(folder)
    for word, rest in _instructions(folder / "Dockerfile"):
        reader.take(word, rest)
    return reader.image()


def _instructions(path: Path) -> Iterator[tuple[str, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TaskError("its Dockerfile is not UTF-8 text") from error
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\s*\n", " ", "\n".join(lines)).splitlines():
        word, _, rest = line.strip().partition(" ")
        yield word.upper(), rest.strip()


class _Reader:
    """Follows a Dockerfile."""

    def __init__(self, context: Path) -> None:
        self._context = context.resolve()
        self._workdir, self._base = "/", ""
        self._files: dict[str, str] = {}

    def take(self, word: str, rest: str) -> None:
        """Follow an instruction.

        Raises:
            TaskError: it cannot be followed.
        """
        if word in WITHOUT_EFFECT or (word == "USER" and rest in ("root", "0")):
            return
        if word not in ("FROM", "WORKDIR", "COPY"):
            raise TaskError(f"its image is built with {word}, which is not followed here")
        if "$" in rest or "<<" in rest:
            raise TaskError(f"its Dockerfile has variables or embedded files in {word}, which are not read here")
        {"FROM": self._from, "WORKDIR": self._go, "COPY": self._copy}[word](rest)

    def image(self) -> Image:
        """Return what was found.

        Raises:
            TaskError: the files are not all in one folder that can be shown to a session.
        """
        top = self._workdir.removeprefix("/")
        if not re.fullmatch(r"\w[\w.-]*", top) or top in {*TAKEN, *Path(sys.base_prefix).parts[1:2]}:
            raise TaskError(f"its working folder is {self._workdir}; it must be one of its own in the root, such as /app")
        inside = {name: PurePosixPath(name).relative_to(self._workdir) for name in self._files if name.startswith(f"{self._workdir}/")}
        if outside := sorted(self._files.keys() - inside.keys()):
            raise TaskError(f"it has files outside of its working folder: {outside[0]}")
        return Image(self._workdir, {str(path): self._files[name] for name, path in inside.items()})

    def _from(self, rest: str) -> None:
        if self._base:
            raise TaskError("its image is built in several stages")
        self._base = rest.split()[0] if rest else ""
        name, _, tag = self._base.partition("@")[0].removeprefix("docker.io/").removeprefix("library/").partition(":")
        if name not in PLAIN:
            raise TaskError(f"its image starts from {name or 'nothing'}; this machine stands in for {', '.join(PLAIN)} only")
        version, ours = re.match(r"\d+\.\d+", tag), f"{sys.version_info.major}.{sys.version_info.minor}"
        if name == "python" and version and version[0] != ours:
            raise TaskError(f"its image has Python {version[0]}, this longrein runs on {ours}")

    def _go(self, rest: str) -> None:
        self._workdir = self._inside(rest)

    def _inside(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self._workdir, path.strip("\"'")))

    def _copy(self, rest: str) -> None:
        words = _words(rest)
        if len(words) < 2 or any(word.startswith("--") or re.search(r"[*?\[\]]", word) for word in words):
            raise TaskError("its Dockerfile copies with options or wildcards, which are not read here")
        *sources, given = words
        target = self._inside(given)
        folder = given in (".", "./") or given.endswith(("/", "/.")) or len(sources) > 1 or self._is_folder(target)
        for source in sources:
            path = Path(posixpath.normpath(posixpath.join(self._context, source.lstrip("/"))))
            if not path.is_relative_to(self._context) or not path.exists():
                raise TaskError(f"its Dockerfile copies {source}, which is not there")
            if path.is_dir():
                self._add_folder(path, target)
            else:
                self._add(path, posixpath.join(target, path.name) if folder else target)

    def _is_folder(self, target: str) -> bool:
        return target == self._workdir or any(name.startswith(f"{target}/") for name in self._files)

    def _add_folder(self, folder: Path, target: str) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_symlink() or not path.is_dir():
                self._add(path, posixpath.join(target, path.relative_to(folder).as_posix()))

    def _add(self, path: Path, target: str) -> None:
        if path.is_symlink() or not path.is_file():
            raise TaskError(f"it copies {path.name}, which is a link or no file")
        if os.access(path, os.X_OK) and path.stat().st_mode & 0o111:
            raise TaskError(f"it copies {path.name}, which is executable; files of a workspace are not")
        try:
            self._files[target] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise TaskError(f"it copies {path.name}, which is not UTF-8 text") from error


def _words(rest: str) -> list[str]:
    try:
        words = json.loads(rest) if rest.startswith("[") else rest.split()
    except ValueError:
        return []
    return words if all(isinstance(word, str) for word in words) else []
