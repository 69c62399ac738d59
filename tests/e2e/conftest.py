"""What the end-to-end tests share: a config on the toy plugin, and a check that nothing is left behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from longrein.config import Config, from_mapping
from longrein.plugins import PluginHost
from longrein.rollout.policy import resolve_model

TOY = Path(__file__).with_name("toy.py")
MakeConfig = Callable[..., Config]


@pytest.fixture(scope="session")
def practice_policy() -> Path:
    """The practice policy of all tests with a real model; built here (about 4 CPU minutes) when it is not cached yet."""
    config = from_mapping({"taskset": "practice", "agents": {"opencode": {}, "aider": {}, "react": {}}})
    return resolve_model(config, PluginHost.load(), log=print)


@pytest.fixture
def toy_host() -> PluginHost:
    """The host with the toy plugin."""
    return PluginHost.load(("./toy.py",), folder=TOY.parent)


@pytest.fixture
def toy_config(tmp_path: Path) -> MakeConfig:
    """Make a config: agents with options, an endpoint, and overrides."""

    def make(agents: dict[str, dict[str, Any]], url: str | None = None, *sets: str) -> Config:
        policy = {"policy": {"url": url, "model": "scripted"}} if url else {}
        run = {"out": str(tmp_path / "run"), "name": "toy"}
        return from_mapping({"taskset": "doubling", "agents": agents, "plugins": {"use": [str(TOY)]}, "run": run, **policy}, sets)

    return make


@pytest.fixture
def nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a short temporary folder (`tmp_path` stands outside it); fail when a test leaves a process, or anything in that folder."""
    folder = Path(tempfile.mkdtemp(prefix="t-", dir="/tmp"))
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    before = set(psutil.Process().children(recursive=True))
    yield folder
    # torch's own: a cache of compiled code, made by the trainer's import, and the launcher's logs
    left: list[object] = [path.name for path in folder.iterdir() if not path.name.startswith(("torchinductor_", "torchelastic_"))]
    left += list(set(psutil.Process().children(recursive=True)) - before)
    shutil.rmtree(folder)
    assert not left, f"left behind: {left}"
