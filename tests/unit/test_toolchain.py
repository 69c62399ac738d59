"""Toolchains: found, installed whole or not at all, one install at a time. npm is a script of ours; pip and venv are real."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from longrein import toolchain
from longrein.errors import MissingError
from longrein.toolchain import ToolchainSpec
from longrein.toolchain.store import MARKER

NPM = ToolchainSpec("npm", "toy-ai", "1.2.3", "toy")
VENV = ToolchainSpec("venv", "toy-tool", "2.0", "toy", pythons=("python9.9", "python3.broken", f"python3.{sys.version_info.minor}"))
PROGRAM = "#!/bin/sh\necho 1.2.3\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LONGREIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    (tmp_path / "bin").mkdir()
    return tmp_path / "cache" / "toolchains"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def fake_npm(tmp_path: Path, *, binary: str = PROGRAM) -> None:
    """Do what npm does with an agent whose binary comes in an optional platform package, and note each call."""
    program(
        tmp_path / "bin/npm",
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
for kind in x64 x64-baseline; do
    mkdir -p node_modules/toy-$kind/bin node_modules/.bin
    cat > node_modules/toy-$kind/bin/toy <<'END'
{binary}END
    chmod 755 node_modules/toy-$kind/bin/toy
done
""",
    )


def calls(tmp_path: Path) -> int:
    return len((tmp_path / "calls").read_text().splitlines())


def test_missing_says_the_command(cache: Path) -> None:
    with pytest.raises(MissingError, match=r"agent toy 1\.2\.3 is missing: run `longrein agents install toy`"):
        toolchain.find("toy", NPM)
    assert toolchain.state("toy", NPM) == toolchain.ToolchainState("toy", "1.2.3", "missing", cache / "toy-1.2.3")


def test_npm_installs_once_without_scripts_and_takes_the_binary_itself(tmp_path: Path, cache: Path) -> None:
    fake_npm(tmp_path)
    log: list[str] = []
    made = toolchain.install("toy", NPM, log=log.append)
    assert made.program == PurePosixPath(cache / "toy-1.2.3/node_modules/toy-x64/bin/toy")
    assert "--ignore-scripts" in (tmp_path / "calls").read_text()
    assert toolchain.find("toy", NPM) == toolchain.install("toy", NPM, log=log.append) == made
    assert toolchain.state("toy", NPM).state == "installed"
    assert (calls(tmp_path), log[-1]) == (1, "toy 1.2.3: already installed")


def test_a_half_done_install_is_found_and_replaced(tmp_path: Path, cache: Path) -> None:
    fake_npm(tmp_path)
    toolchain.install("toy", NPM, log=print)
    (cache / "toy-1.2.3" / MARKER).unlink()
    leftover = program(cache / "toy-1.2.3/leftover", "")
    assert toolchain.state("toy", NPM).state == "half-done"
    with pytest.raises(MissingError, match="is half-done: run"):
        toolchain.find("toy", NPM)
    toolchain.install("toy", NPM, log=print)
    assert (toolchain.state("toy", NPM).state, leftover.exists()) == ("installed", False)


@pytest.mark.parametrize("damage", ["{", "{}", '{"format": 0}'])
def test_a_damaged_marker_counts_as_half_done(tmp_path: Path, cache: Path, damage: str) -> None:
    fake_npm(tmp_path)
    toolchain.install("toy", NPM, log=print)
    (cache / "toy-1.2.3" / MARKER).write_text(damage)
    assert toolchain.state("toy", NPM).state == "half-done"


def test_a_failing_installer_says_what_it_said(tmp_path: Path) -> None:
    os.environ["PATH"] = str(tmp_path / "bin")
    with pytest.raises(MissingError, match=r"needs Node\.js with npm"):
        toolchain.install("toy", NPM, log=print)
    program(tmp_path / "bin/npm", "#!/bin/sh\necho registry is down >&2; exit 7\n")
    with pytest.raises(MissingError, match=r"failed \(7\): registry is down\nMend that and run `longrein agents install toy` again"):
        toolchain.install("toy", NPM, log=print)
    assert toolchain.state("toy", NPM).state == "half-done"


def test_two_installs_at_once_make_one(tmp_path: Path, cache: Path) -> None:
    fake_npm(tmp_path)
    code = "from longrein.toolchain import *; install('toy', ToolchainSpec('npm', 'toy-ai', '1.2.3', 'toy'), log=print)"
    children = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.DEVNULL) for _ in range(3)]
    assert [child.wait() for child in children] == [0, 0, 0]
    assert calls(tmp_path) == 1


def test_another_version_is_the_one_that_runs_use_until_the_next_install(tmp_path: Path, cache: Path) -> None:
    fake_npm(tmp_path)
    pinned = toolchain.install("toy", NPM, log=print)
    other = toolchain.install("toy", NPM, version="2.0.0", log=print)
    assert "toy-ai@2.0.0" in (tmp_path / "calls").read_text()
    assert (other.version, other.folder) == ("2.0.0", cache / "toy-2.0.0")
    assert toolchain.find("toy", NPM) == other
    assert toolchain.state("toy", NPM).version == "2.0.0"
    (other.folder / MARKER).unlink()
    with pytest.raises(MissingError, match=r"agent toy 2\.0\.0 is half-done: run `longrein agents install toy --version 2\.0\.0`"):
        toolchain.find("toy", NPM)
    assert toolchain.install("toy", NPM, log=print) == pinned == toolchain.find("toy", NPM)
    assert calls(tmp_path) == 2


def test_a_script_gets_the_real_path_of_node(tmp_path: Path) -> None:
    node = program(tmp_path / "node-20/bin/node", '#!/bin/sh\n[ "$1" = -p ] && echo "$0" || { shift; echo "script got $*"; }\n')
    program(tmp_path / "bin/node", f'#!/bin/sh\nexec {node} "$@"\n')  # as version managers do
    body = "mkdir -p node_modules/.bin; echo '#!/usr/bin/env node' > node_modules/.bin/toy; chmod 755 node_modules/.bin/toy"
    program(tmp_path / "bin/npm", f"#!/bin/sh\n{body}\n")
    made = toolchain.install("toy", NPM, log=print)
    (tmp_path / "bin/node").unlink()
    done = subprocess.run([made.program, "a b", "c"], capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin"})
    assert (done.stdout, made.binds) == ("script got a b c\n", (tmp_path / "node-20",))


@pytest.mark.parametrize("place", ["toy-x64/bin", "toy-ai-linux-x64", "toy-ai-linux-x64/vendor/x86-musl/bin"])
def test_platform_packages_hold_the_program_in_several_places(tmp_path: Path, place: str) -> None:
    body = (
        f"mkdir -p node_modules/{place}; printf '#!/bin/sh\\necho 1.2.3\\n' > node_modules/{place}/toy; chmod 755 node_modules/{place}/toy"
    )
    program(tmp_path / "bin/npm", f"#!/bin/sh\n{body}\n")
    made = toolchain.install("toy", NPM, log=print)
    assert made.program == PurePosixPath(made.folder / "node_modules" / place / "toy")


def test_venv_uses_the_first_python_that_runs_and_pip_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path / "wheels")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    program(tmp_path / "bin/python3.broken", "#!/bin/sh\necho 'shim: not installed' >&2; exit 127\n")
    made = toolchain.install("toy", VENV, log=print)
    assert subprocess.run([made.program], capture_output=True, text=True, check=True).stdout == "toy runs\n"
    assert all(path.is_dir() and not path.is_relative_to("/usr") for path in made.binds)
    assert list(made.folder.glob("lib/python3*/site-packages/__pycache__/toy_tool*.pyc"))
    assert toolchain.find("toy", VENV) == made
    (made.folder / "bin/toy").unlink()
    assert toolchain.state("toy", VENV).state == "half-done"


def test_no_python_names_all_that_were_tried() -> None:
    with pytest.raises(MissingError, match=r"needs one of python9\.8, python9\.9 with its venv module.*python3-venv"):
        toolchain.install("toy", ToolchainSpec("venv", "toy-tool", "2.0", "toy", pythons=("python9.8", "python9.9")), log=print)


def test_system_takes_the_program_on_path(tmp_path: Path) -> None:
    with pytest.raises(MissingError, match=r"no toy on PATH; `longrein agents install toy` without --system installs 1\.2\.3"):
        toolchain.install("toy", NPM, system=True, log=print)
    real = program(tmp_path / "opt/toy/bin/toy", "#!/bin/sh\necho toy 9.1\n")
    (tmp_path / "bin/toy").symlink_to(real)
    made = toolchain.install("toy", NPM, system=True, log=print)
    assert (made.version, made.program, made.folder) == ("9.1", PurePosixPath(real), tmp_path / "opt/toy")
    assert toolchain.find("toy", NPM) == made
    with pytest.raises(MissingError, match="does not stand in a venv of its own"):
        toolchain.install("toy", VENV, system=True, log=print)


def wheel(folder: Path) -> None:
    folder.mkdir()
    with zipfile.ZipFile(folder / "toy_tool-2.0-py3-none-any.whl", "w") as archive:
        info = "toy_tool-2.0.dist-info"
        archive.writestr("toy_tool.py", "def main():\n    print('toy runs')\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: toy-tool\nVersion: 2.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", "[console_scripts]\ntoy = toy_tool:main\n")
        archive.writestr(f"{info}/RECORD", "")
