"""Which installed files a function's packages are made of: those, and not the whole environment, are seen in the sandbox."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from importlib.util import find_spec
from pathlib import Path

from longrein.errors import ConfigError

CLIENT = "openai"
OWN = re.compile(r"longrein\b")
"""longrein and its plugins hold tasks with their answers: agents never see them."""


def requirements(package: str) -> Sequence[str]:
    """Return what the distributions of an importable package require, by name; nothing for a module that is not installed."""
    return [name for found in packages_distributions().get(package, ()) for name in _required(distribution(found))]


def folders_of(names: Iterable[str], *, given: Sequence[str]) -> list[Path]:
    """Return the files and folders of these distributions and all that they require.

    Args:
        names: distributions; those that are not installed are left out.
        given: the names that must be installed, since the user asked for them.

    Raises:
        ConfigError: one of `given` is not installed, or is longrein's own.
    """
    found: dict[Path, None] = {}
    asked = {_normal(name) for name in given}
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = _normal(waiting.pop(0))
        if OWN.match(name) and name in asked:
            raise ConfigError(f"packages: {name!r} holds tasks and answers and cannot be seen by an agent")
        if name in seen or OWN.match(name):
            continue
        seen.add(name)
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            if name in asked:
                raise ConfigError(f"packages: {name!r} is not installed beside longrein") from None
            continue
        found |= dict.fromkeys(_paths(installed))
        waiting += _required(installed)
    return list(found)


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _required(installed: Distribution) -> Iterator[str]:
    """Yield the names of the requirements without those of extras; markers are not weighed, absent ones are skipped later."""
    for line in installed.requires or ():
        if "extra ==" not in line and (match := re.match(r"[\w.-]+", line)):
            yield match[0]


def _paths(installed: Distribution) -> Iterator[Path]:
    tops = {file.parts[0] for file in installed.files or () if file.parts[0] not in ("..", "__pycache__")}
    for top in sorted(tops):
        path = Path(str(installed.locate_file(top)))
        if path.suffix == ".pth":  # installed for editing: its packages stand elsewhere
            yield from _editable(installed)
        elif path.exists():
            yield path


def _editable(installed: Distribution) -> Iterator[Path]:
    for package, owners in packages_distributions().items():
        if installed.name in owners and (spec := find_spec(package)) and spec.origin:
            yield Path(spec.origin).parent if spec.submodule_search_locations else Path(spec.origin)
