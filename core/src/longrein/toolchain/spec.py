"""What a toolchain is: a pinned installation of an agent in a cache folder."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Literal

from attrs import field, frozen


@frozen
class ToolchainSpec:
    """A program to install from a registry.

    `kind` "npm" installs `package`@`version` with npm; "venv" makes a Python venv with the first of `pythons` found
    and installs `package`==`version` into it.
    """

    kind: Literal["npm", "venv"]
    package: str
    version: str
    program: str
    """The executable's name, looked for on PATH with `--system`."""
    pythons: tuple[str, ...] = ("python3.12", "python3.11", "python3.10")
    with_packages: tuple[str, ...] = ()
    """Further requirements to install beside the package (venv only)."""
    without: tuple[str, ...] = ()
    """Names of the package's own requirements to leave out (venv only)."""


@frozen
class InstalledToolchain:
    """A toolchain that is ready to run."""

    name: str
    version: str
    folder: Path
    """What a sandbox binds read-only."""
    program: PurePosixPath
    """The executable; an absolute path that holds inside the sandbox too (folders are bound where they stand)."""
    binds: tuple[Path, ...] = field(default=())
    """Further folders to bind read-only: the base prefix of a venv's interpreter, for example."""
