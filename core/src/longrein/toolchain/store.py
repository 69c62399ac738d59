"""Where toolchains stand, and whether they are whole."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Literal

from attrs import evolve, frozen

from longrein.errors import MissingError
from longrein.toolchain.spec import InstalledToolchain, ToolchainSpec

MARKER = "longrein.json"
"""Written into a toolchain's folder last: without it the folder is half-done."""
FORMAT = 1
"""Raised when an installation of an older longrein cannot be used any more."""


@frozen
class ToolchainState:
    """One line of `longrein agents list`."""

    name: str
    version: str
    state: Literal["installed", "half-done", "missing"]
    path: Path


def cache_root() -> Path:
    """Return the cache folder: LONGREIN_CACHE, else `longrein` below XDG_CACHE_HOME or ~/.cache."""
    if own := os.environ.get("LONGREIN_CACHE"):
        return Path(own).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "longrein"


def folder_of(name: str, spec: ToolchainSpec) -> Path:
    """Return the folder of a toolchain, one for each version."""
    return cache_root() / "toolchains" / f"{name}-{spec.version}"


def chosen(name: str, spec: ToolchainSpec) -> ToolchainSpec:
    """Return the spec with the version that `longrein agents install NAME --version V` asked for, else as it is."""
    try:
        return evolve(spec, version=_choice(name).read_text(encoding="utf-8").strip())
    except OSError:
        return spec


def choose(name: str, version: str | None) -> None:
    """Make `version` the one that `find` returns; None goes back to the adapter's own."""
    if version is None:
        _choice(name).unlink(missing_ok=True)
    else:
        _choice(name).write_text(version + "\n", encoding="utf-8")


def _choice(name: str) -> Path:
    return cache_root() / "toolchains" / f"{name}.version"


def find(name: str, spec: ToolchainSpec) -> InstalledToolchain:
    """Return an installed toolchain, of the version last asked for.

    Raises:
        MissingError: it is not installed, half-done or broken; the message has the command that installs it.
    """
    asked = chosen(name, spec)
    found = read(name, asked)
    if found is None:
        other = "" if asked == spec else f" --version {asked.version}"
        raise MissingError(f"agent {name} {asked.version} is {state(name, spec).state}: run `longrein agents install {name}{other}`")
    return found


def state(name: str, spec: ToolchainSpec) -> ToolchainState:
    """Return whether a toolchain is there, of the version last asked for; for listings."""
    spec = chosen(name, spec)
    found, folder = read(name, spec), folder_of(name, spec)
    if found is not None:
        return ToolchainState(name, found.version, "installed", Path(found.program))
    return ToolchainState(name, spec.version, "half-done" if folder.exists() else "missing", folder)


def read(name: str, spec: ToolchainSpec) -> InstalledToolchain | None:
    """Return what the marker says, or None when there is no whole installation of this spec."""
    try:
        marker = json.loads((folder_of(name, spec) / MARKER).read_text(encoding="utf-8"))
        if marker["format"] != FORMAT or marker["with_packages"] != list(spec.with_packages):
            return None
        found = InstalledToolchain(
            name=name,
            version=marker["version"],
            folder=Path(marker["folder"]),
            program=PurePosixPath(marker["program"]),
            binds=tuple(Path(path) for path in marker["binds"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    # An interpreter that was upgraded away takes its venvs with it.
    whole = os.access(found.program, os.X_OK) and all(path.exists() for path in (found.folder, *found.binds))
    return found if whole else None


def write(spec: ToolchainSpec, found: InstalledToolchain, folder: Path) -> None:
    """Mark the toolchain in `folder` as whole."""
    marker = {
        "format": FORMAT,
        "version": found.version,
        "with_packages": list(spec.with_packages),
        "folder": str(found.folder),
        "program": str(found.program),
        "binds": [str(path) for path in found.binds],
    }
    (folder / MARKER).write_text(json.dumps(marker, indent=1) + "\n", encoding="utf-8")
