"""Install a toolchain: npm package or Python venv, pinned, under a lock, whole or not at all."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from attrs import evolve

from longrein.errors import MissingError
from longrein.toolchain.lock import locked
from longrein.toolchain.spec import InstalledToolchain, ToolchainSpec
from longrein.toolchain.store import choose, folder_of, read, write

Log = Callable[[str], None]
REQUIREMENTS = """
import sys
from importlib.metadata import requires
from pip._vendor.packaging.requirements import Requirement
for text in requires(sys.argv[1]) or ():
    asked = Requirement(text)
    if (asked.marker is None or asked.marker.evaluate({"extra": ""})) and asked.name not in sys.argv[2:]:
        asked.marker = None
        print(asked)
"""
"""Prints what the package sys.argv[1] requires here, but for the names after it; for the venv's own Python."""


def install(name: str, spec: ToolchainSpec, *, version: str | None = None, system: bool = False, log: Log) -> InstalledToolchain:
    """Install a toolchain unless it is there, and make it the one that runs use; a half-done one is replaced.

    Args:
        name: the agent's name.
        spec: what to install.
        version: another version than the spec's.
        system: take the program found on PATH instead of installing one.
        log: gets one line for each step.

    Raises:
        MissingError: npm, Python or the program is missing, or the package could not be installed; says what to do.
    """
    if version == spec.version:
        version = None
    spec = evolve(spec, version=version or spec.version)
    folder = folder_of(name, spec)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(folder.name + ".lock"), lambda: log(f"{name}: waiting for another install")):
        if not system and (found := read(name, spec)) is not None and found.folder == folder:
            log(f"{name} {found.version}: already installed")
            choose(name, version)
            return found
        if folder.exists():
            log(f"{name}: replacing what is in {folder}")
            shutil.rmtree(folder)
        folder.mkdir()
        made = _from_path(name, spec) if system else {"npm": _npm, "venv": _venv}[spec.kind](name, spec, folder, log)
        write(spec, made, folder)
        choose(name, version)
    log(f"{name} {made.version}: {made.program}")
    return made


def _npm(name: str, spec: ToolchainSpec, folder: Path, log: Log) -> InstalledToolchain:
    npm = shutil.which("npm")
    if npm is None:
        raise MissingError(
            f"agent {name} needs Node.js with npm: install it (https://nodejs.org, or your package manager), then run "
            f"`longrein agents install {name}` again"
        )
    log(f"{name}: npm install {spec.package}@{spec.version}")
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--save-exact"]
    _run([npm, "install", "--prefix", str(folder), *options, f"{spec.package}@{spec.version}"], name, cwd=folder)
    native = _native(folder, spec)
    program, binds = (native, ()) if native else _script(name, folder, spec)
    version = _run([str(program), "--version"], name, cwd=folder).strip().splitlines()
    if not version:
        raise MissingError(f"agent {name}: {program} --version said nothing: run `longrein agents install {name}` again")
    return InstalledToolchain(name, spec.version, folder, PurePosixPath(program), binds)


def _native(folder: Path, spec: ToolchainSpec) -> Path | None:
    """Return the first platform binary that runs here: npm may have installed one for newer CPUs beside a baseline one.

    Platform packages are named after the program or the package, and hold the program at the top, in `bin` or in `vendor/*/bin`.
    """
    packages = [f"node_modules/{name}-*/" for name in dict.fromkeys((spec.program, spec.package))]
    found = [
        path for package in packages for place in ("", "bin/", "vendor/*/bin/") for path in folder.glob(package + place + spec.program)
    ]
    candidates = sorted((path for path in found if path.is_file()), key=lambda path: (len(str(path)), str(path)))
    return next((path for path in candidates if _works([str(path), "--version"])), None)


def _script(name: str, folder: Path, spec: ToolchainSpec) -> tuple[Path, tuple[Path, ...]]:
    """Write a starter with the real path of Node.js, which no sandbox looks for on PATH; return it and what to bind for it."""
    answer = _works(["node", "-p", "process.execPath"])
    if answer is None:
        raise MissingError(
            f"agent {name} needs Node.js: no `node` on PATH runs; install it, then run `longrein agents install {name}` again"
        )
    node = Path(answer.strip()).resolve()
    starter = folder / "bin" / spec.program
    starter.parent.mkdir(exist_ok=True)
    script = folder / "node_modules" / ".bin" / spec.program
    starter.write_text(f'#!/bin/sh\nexec {shlex.quote(str(node))} {shlex.quote(str(script))} "$@"\n', encoding="utf-8")
    starter.chmod(0o755)
    return starter, _unless_system(node.parent.parent)


def _venv(name: str, spec: ToolchainSpec, folder: Path, log: Log) -> InstalledToolchain:
    python, prefix = _python(name, spec)
    log(f"{name}: python -m venv with {python}, pip install {spec.package}=={spec.version}")
    _run([python, "-m", "venv", str(folder)], name, cwd=folder)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if spec.without:
        _run([*pip, "--no-deps", f"{spec.package}=={spec.version}"], name, cwd=folder)
        asked = _run([str(folder / "bin/python"), "-c", REQUIREMENTS, spec.package, *spec.without], name, cwd=folder).splitlines()
        _run([*pip, *spec.with_packages, *asked], name, cwd=folder)
    else:
        _run([*pip, f"{spec.package}=={spec.version}", *spec.with_packages], name, cwd=folder)
    # Sandboxes bind the folder read-only: what is not compiled now is compiled in every session.
    _run([str(folder / "bin/python"), "-m", "compileall", "-q", "-j", "0", str(folder / "lib")], name, cwd=folder, check=False)
    program = folder / "bin" / spec.program
    if not program.exists():
        raise MissingError(f"agent {name}: {spec.package} {spec.version} has no program {spec.program}")
    return InstalledToolchain(name, spec.version, folder, PurePosixPath(program), _unless_system(prefix))


def _python(name: str, spec: ToolchainSpec) -> tuple[str, Path]:
    """Return the first Python of the spec that runs, with its base prefix; a shim on PATH may exist and still not run."""
    ask = "import ensurepip, sys, venv; print(sys.base_prefix)"
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for wanted in spec.pythons:
        for candidate in dict.fromkeys((shutil.which(wanted), *([sys.executable] if wanted == own else []))):
            if candidate and (answer := _works([candidate, "-c", ask])):
                return candidate, Path(answer.strip())
    raise MissingError(
        f"agent {name} needs one of {', '.join(spec.pythons)} with its venv module (Debian, Ubuntu: apt-get install "
        f"python3-venv): install it, then run `longrein agents install {name}` again"
    )


def _from_path(name: str, spec: ToolchainSpec) -> InstalledToolchain:
    """Return the program on PATH; what a sandbox binds is the folder that its real file stands in."""
    program = shutil.which(spec.program)
    version = _works([program, "--version"]) if program else None
    if program is None or not version:
        trouble = f"{program} --version does not run" if program else f"no {spec.program} on PATH"
        raise MissingError(f"agent {name}: {trouble}; `longrein agents install {name}` without --system installs {spec.version}")
    real = Path(program).resolve()
    folder = real.parent.parent if real.parent.name == "bin" else real.parent
    binds: tuple[Path, ...] = ()
    if spec.kind == "venv":
        prefix = _works([str(real.with_name("python")), "-c", "import sys; print(sys.base_prefix)"])
        if prefix is None:
            raise MissingError(
                f"agent {name}: {real} does not stand in a venv of its own; `longrein agents install {name}` without --system makes one"
            )
        binds = _unless_system(Path(prefix.strip()))
    return InstalledToolchain(name, version.split()[-1], folder, PurePosixPath(real), binds)


def _unless_system(prefix: Path) -> tuple[Path, ...]:
    """Return what to bind for an interpreter's base prefix; every sandbox has /usr."""
    return () if prefix.is_relative_to("/usr") else (prefix,)


def _works(command: Sequence[str]) -> str | None:
    """Return what `command` printed, or None when it cannot run, fails or takes long."""
    try:
        tried = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return tried.stdout if tried.returncode == 0 else None


def _run(command: Sequence[str], name: str, *, cwd: Path, check: bool = True) -> str:
    """Run an installer in the environment it was called in (proxies, PIP_ and npm settings), without the engine's own venv."""
    env: Mapping[str, str] = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if check and done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-800:]
        raise MissingError(
            f"agent {name}: `{' '.join(command)}` failed ({done.returncode}): {said}\n"
            f"Mend that and run `longrein agents install {name}` again"
        )
    return done.stdout
