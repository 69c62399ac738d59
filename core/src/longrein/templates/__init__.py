"""Skeletons of distributions: `longrein new adapter NAME` and `longrein new verifier NAME` fill them in."""

from __future__ import annotations

import keyword
import re
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template
from typing import Literal

from longrein.errors import ConfigError
from longrein.hookspecs import SDK_VERSION

Kind = Literal["adapter", "verifier"]
SUFFIX = ".tmpl"


def create(kind: Kind, name: str, out: Path) -> list[Path]:
    """Write a whole small distribution and return its files.

    Args:
        kind: which skeleton.
        name: of the agent or verifier, as configs will name it; the distribution is longrein-NAME.
        out: its folder, which must not exist.

    Raises:
        ConfigError: the name cannot be a distribution and a module, or the folder exists.
    """
    package, cls = f"longrein_{name.replace('-', '_')}", name.title().replace("-", "")
    if not re.fullmatch(r"[a-z](-?[a-z0-9])*", name) or any(map(keyword.iskeyword, (name, cls))):
        raise ConfigError(f"{name!r} cannot name {kind} and distribution; take small letters, digits and single dashes, such as 'my-agent'")
    if out.exists():
        raise ConfigError(f"{out} exists; name another folder with --out")
    words = {"name": name, "package": package, "cls": cls, "sdk": str(SDK_VERSION)}
    made = []
    for inside, text in _read(files(__name__) / kind):
        path = out / Template(inside.removesuffix(SUFFIX)).substitute(words)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(Template(text).substitute(words), encoding="utf-8")
        made.append(path)
    return made


def _read(folder: Traversable, below: str = "") -> list[tuple[str, str]]:
    found = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        inside = f"{below}/{entry.name}".lstrip("/")
        found += _read(entry, inside) if entry.is_dir() else [(inside, entry.read_text(encoding="utf-8"))]
    return found
