"""The pytest plugin of the tests' side: modules of the workspace are remote, and every result is written down as it comes."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from longrein_pytest.remote import Link, ProgramEnded, RemoteModule


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the workspace's modules after all others: a planted json.py or pytest.py is never what a test imports."""

    def __init__(self, link: Link, names: Sequence[str]) -> None:
        self._link, self._names, self._imported = link, names, set[str]()

    def find_spec(self, fullname: str, path: Any = None, target: ModuleType | None = None) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for a module whose top-level name stands in the workspace."""
        if fullname.partition(".")[0] not in self._names:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """Return an empty stand-in."""
        return RemoteModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Import the module there."""
        name, again = module.__name__, module.__name__ in self._imported
        self._imported.add(name)
        module.__dict__["_remote"] = self._link.ask("import", name, again)
        if not self._link.ask("package", name):
            del module.__path__


class Recorder:
    """Writes a line for each result, and one at the end; what is not written has not passed."""

    def __init__(self, path: Path, link: Link) -> None:
        self._file, self._link = path.open("a", encoding="utf-8"), link
        self._raised: dict[str, dict[str, str]] = {}
        self._write(started=True)

    def _write(self, **values: Any) -> None:
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()

    def _keep(self, nodeid: str, error: BaseException) -> None:
        """Keep what was raised; the text of an assertion holds what was expected, that of the workspace's code does not."""
        if isinstance(error, pytest.Collector.CollectError) and error.__cause__ is not None:
            error = error.__cause__
        from_there = error is self._link.raised or isinstance(error, (ModuleNotFoundError, ProgramEnded))
        self._raised[nodeid] = {"kind": type(error).__name__, "detail" if from_there else "expected": str(error)[:1000]}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[Any]) -> Generator[None, Any, Any]:
        """Look at what a test raised."""
        report = yield
        if call.excinfo is not None:
            self._keep(report.nodeid, call.excinfo.value)
        return report

    def pytest_exception_interact(self, call: pytest.CallInfo[Any], report: Any) -> None:
        """Look at what the import of a file raised."""
        if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
            self._keep(report.nodeid, call.excinfo.value)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write a file that could not be collected."""
        if report.outcome != "passed":
            self._write(file=report.nodeid, **self._raised.get(report.nodeid, {"kind": report.outcome}))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a test that passed, or the first phase of it that did not."""
        if report.outcome == "passed" and report.when != "call":
            return
        if hasattr(report, "wasxfail"):
            said = {"kind": "xfail"}
        else:
            said = {} if report.outcome == "passed" else self._raised.get(report.nodeid, {"kind": report.outcome})
        self._write(test=report.nodeid, passed=not said, duration_s=report.duration, **said)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Write the end."""
        self._write(finished=int(exitstatus))


def pytest_configure(config: pytest.Config) -> None:
    """Connect with the workspace's process."""
    plan = json.loads(os.environ["LONGREIN_PYTEST"])
    sys.set_int_max_str_digits(100_000)
    link = Link(plan["descriptor"])
    sys.meta_path.append(Finder(link, plan["names"]))
    config.pluginmanager.register(Recorder(Path(plan["report"]), link))
    config.stash[LINK] = link


LINK = pytest.StashKey[Link]()


@pytest.fixture
def program(request: pytest.FixtureRequest) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script of the workspace: `program("solution.py", "argument", stdin="3\\n").stdout`."""
    link = request.config.stash[LINK]

    def run(path: str, *arguments: str, stdin: str = "", timeout_s: float = 10.0) -> subprocess.CompletedProcess[str]:
        code, out, err = link.ask("run", path, list(arguments), stdin, timeout_s)
        return subprocess.CompletedProcess([path, *arguments], int(code), str(out), str(err))

    return run
