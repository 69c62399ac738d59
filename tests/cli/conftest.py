"""The command line in the tests' own process, where an interpreter for each call would take most of the time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longrein.cli import main

Cli = Callable[..., Any]


@pytest.fixture
def longrein(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run the command line in this process and check its exit code."""

    def run(*arguments: str | Path, code: int = 0) -> Any:
        monkeypatch.setattr(sys, "argv", ["longrein", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        assert end.value.code == code, said.err
        return said

    return run
