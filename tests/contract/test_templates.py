"""What `longrein new` makes is installed into a fresh venv beside core, listed, checked and run; core is not touched."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Any

import pytest

import longrein
from longrein import templates
from longrein.errors import ConfigError
from longrein.testing.scripted import ScriptedServer
from longrein.testing.solver import solver

pytestmark = pytest.mark.timeout(600)
CORE = Path(longrein.__file__).parent


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a fresh venv that sees what is installed here."""
    folder = tmp_path_factory.mktemp("stranger")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (site / "base.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n", encoding="utf-8")
    return folder / "venv" / "bin" / "python"


def longrein_in(python: Path, *arguments: str | Path, code: int = 0) -> str:
    """Run the command line of that venv."""
    done = subprocess.run([python, "-m", "longrein", *map(str, arguments)], capture_output=True, text=True, timeout=500, cwd=python.parent)
    assert done.returncode == code, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def install(python: Path, folder: Path) -> None:
    """Install a distribution as its README says, without the network."""
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--disable-pip-version-check", "-e", folder], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def digest(folder: Path) -> str:
    """Return a hash of a source tree."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        total.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return total.hexdigest()


def states(python: Path, kind: str, name: str) -> dict[str, str]:
    """Return what `longrein check` says of each check."""
    results: list[dict[str, Any]] = json.loads(longrein_in(python, "check", kind, name, "--json"))
    assert all(result["reason"] for result in results if result["state"] != "held")
    return {result["check"]: result["state"] for result in results}


def test_an_adapter_made_by_a_stranger(python: Path, tmp_path: Path) -> None:
    before = digest(CORE)
    longrein_in(python, "new", "adapter", "my-agent", "--out", tmp_path / "mine")
    install(python, tmp_path / "mine")
    listed = {plugin["name"]: plugin for plugin in json.loads(longrein_in(python, "plugins", "--json"))}
    mine = listed["my-agent"]
    assert (mine["distribution"], mine["version"], mine["state"]) == ("longrein-my-agent", "0.1.0", "ok")
    assert (mine["hooks"], mine["provides"], mine["sdk"]) == (["longrein_agents"], ["agent my-agent"], 1)
    found = states(python, "adapter", "my-agent")
    assert {name for name, state in found.items() if state == "not applicable"} <= {"side_calls_are_aux", "declared_turn_cap"}
    assert "failed" not in found.values()
    assert len(found) > 20
    with ScriptedServer(solver(lambda _: "print(1)\n")) as server:
        policy = ("--policy-url", server.endpoint.url, "--policy", "scripted")
        tasks = ("--taskset", "practice", "--limit", "1", "--samples", "2")
        compare = ("compare", "--agents", "my-agent,nop,oracle", *tasks, *policy, "--out", tmp_path / "run", "--json")
        shown = json.loads(longrein_in(python, *compare))["comparison"]
    figures = {agent["agent"]: agent for agent in shown["figures"]}
    assert (figures["oracle"]["pass_rate"], figures["nop"]["pass_rate"]) == (1.0, 0.0)
    assert figures["my-agent"]["outcomes"] == {"completed": 2}
    assert digest(CORE) == before


def test_a_verifier_made_by_a_stranger(python: Path, tmp_path: Path) -> None:
    before = digest(CORE)
    longrein_in(python, "new", "verifier", "words", "--out", tmp_path / "words")
    install(python, tmp_path / "words")
    found = states(python, "verifier", "words")
    assert {name for name, state in found.items() if state != "held"} == {"leaves_no_process", "verdicts_hide_the_answers"}
    assert "failed" not in found.values()
    run = ("run", "--agent", "oracle", "--agent", "nop", "--taskset", "words", "--out", tmp_path / "run", "--json")
    shown = json.loads(longrein_in(python, *run))
    assert {name: cell["run"]["pass_rate"] for name, cell in shown["agents"].items()} == {"oracle": 1.0, "nop": 0.0}
    assert digest(CORE) == before


@pytest.mark.more
@pytest.mark.parametrize("kind", ["adapter", "verifier"])
def test_the_tests_that_come_with_it_pass(python: Path, tmp_path: Path, kind: str) -> None:
    name = f"tested-{kind}"
    longrein_in(python, "new", kind, name, "--out", tmp_path / "mine")
    install(python, tmp_path / "mine")
    done = subprocess.run([python, "-m", "pytest", "-q", tmp_path / "mine"], capture_output=True, text=True, timeout=500, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.parametrize("name", ["My-Agent", "my_agent", "1st", "a--b", "-x", "x-", "class", "none", "", "a/b", "../x"])
def test_a_name_that_cannot_be_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot name adapter and distribution; take small letters, digits and single dashes"):
        templates.create("adapter", name, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"exists; name another folder with --out"):
        templates.create("adapter", "fine", tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["adapter", "verifier"])
def test_what_is_made_is_clean(kind: Any, tmp_path: Path) -> None:
    made = templates.create(kind, "my-own", tmp_path / "mine")
    assert {"pyproject.toml", "README.md", "test.yml", "__init__.py", "contract.py"} <= {path.name for path in made}
    assert not [path for path in made if "$" in path.read_text() or path.suffix == ".tmpl"]
    config = Path(__file__).parents[2] / "pyproject.toml"
    for command in (["check", "--ignore", "I001"], ["format", "--check"]):
        done = subprocess.run(
            ["ruff", *command, "--config", config, tmp_path], capture_output=True, text=True, env={"PATH": str(Path(sys.executable).parent)}
        )
        assert done.returncode == 0, done.stdout
