"""A Python function as an agent: how it is named, what it is given, what it may see, how it fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from longrein import api
from longrein.config import from_mapping
from longrein.errors import ConfigError, RunStopped, UnknownNameError
from longrein.function import agent
from longrein.model import Rollout
from longrein.plugins import PluginHost
from longrein.rollout.record import read_rollouts
from longrein.testing.scripted import Reply, ScriptedServer

FILE = Path(__file__).with_name("my_function.py")
TOY = Path(__file__).parents[1] / "e2e" / "toy.py"
PROGRAM = "print(2 * int(input()))\n"

pytestmark = pytest.mark.timeout(300)


def run(tmp_path: Path, options: dict[str, Any], *, status: int = 200, backend: str = "auto") -> Rollout:
    """Run one session of a function on the doubling task."""

    def script(request: dict[str, Any]) -> Reply:
        asked = "print 2*n" in str(request["messages"])  # and not the engine's own check
        return Reply(PROGRAM, status=status if asked else 200)

    with ScriptedServer(script) as server:
        config = from_mapping(
            {
                "taskset": {"name": "doubling", "limit": 1},
                "agents": {"function": options},
                "run": {"out": str(tmp_path / "run")},
                "plugins": {"use": [str(TOY)]},
                "policy": {"url": server.endpoint.url, "model": "scripted"},
                "sandbox": {"backend": backend},
            }
        )
        host = PluginHost.load((str(TOY),))
        try:
            return api.run(config, host=host).rollouts[0]
        except RunStopped:
            return next(read_rollouts(tmp_path / "run"))


@pytest.mark.parametrize("backend", ["auto", "supervisor"])
def test_a_plain_function_gets_a_client_and_the_task(tmp_path: Path, backend: str) -> None:
    rollout = run(tmp_path, {"target": f"{FILE}:plain"}, backend=backend)
    assert (rollout.outcome.kind, rollout.verdict.status) == ("completed", "passed"), rollout.session.stderr
    assert rollout.session.stdout.startswith("files ['examples/1.in', 'examples/1.out', 'examples/check.py'] check ")
    assert rollout.session.stdout.endswith("/python3 examples/check.py cwd True\n")
    assert [turn.label.label for turn in rollout.trajectory] == ["train"]


def test_an_exception_is_the_agents_error_and_longrein_is_not_there_to_be_read(tmp_path: Path) -> None:
    rollout = run(tmp_path, {"target": f"{FILE}:looks"})
    assert (rollout.outcome.kind, rollout.outcome.reason) == ("agent_error", "exit code 1: ValueError: lost")
    assert (rollout.session.stdout, rollout.verdict.status) == ("saw nothing\n", "failed")


def test_an_engine_that_fails_is_no_error_of_the_agents(tmp_path: Path) -> None:
    rollout = run(tmp_path, {"target": f"{FILE}:plain"}, status=500)
    assert (rollout.outcome.kind, rollout.verdict.status) == ("llm_error", "unscorable")


def solve(client: Any, task: Any) -> None:
    """Stand for a function in a module that people import."""


def test_the_decorator_gives_the_options_of_a_function() -> None:
    assert agent(solve) is solve
    assert solve.options == {"target": f"{Path(__file__).resolve()}:solve"}  # type: ignore[attr-defined]
    made = PluginHost.load().agent("function", solve.options)  # type: ignore[attr-defined]
    assert made.name == "function"


def test_what_cannot_be_found_again_is_refused() -> None:
    def inner(client: Any, task: Any) -> None: ...

    for bad in (inner, lambda client, task: None):
        with pytest.raises(ConfigError, match="cannot be an agent: another process must find it"):
            agent(bad)
    with pytest.raises(ConfigError, match=r"run takes \(tmp_path: .*; an agent takes \(client, task\)"):
        agent(run)


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({}, ConfigError, r"\[agents\.function\] needs target"),
        ({"target": "my_function"}, ConfigError, r"must be 'package\.module:function' or 'path/to/file\.py:function', got 'my_function'"),
        ({"target": "lr_absent.agents:solve"}, ConfigError, r"there is no module 'lr_absent\.agents' here; install its package, or name"),
        ({"target": "absent.py:solve"}, ConfigError, r"there is no file /.*absent\.py"),
        (
            {"target": f"{FILE}:plian"},
            UnknownNameError,
            r"unknown function in .*my_function\.py 'plian'; known: .*; did you mean 'plain'\?",
        ),
        ({"target": f"{FILE}:plain", "packages": ["lr-absent"]}, ConfigError, r"packages: 'lr-absent' is not installed beside longrein"),
        ({"target": f"{FILE}:plain", "packages": ["longrein-deepcoder"]}, ConfigError, r"'longrein-deepcoder' holds tasks and answers"),
        ({"target": f"{FILE}:plain", "packages": ["Longrein"]}, ConfigError, r"'longrein' holds tasks and answers"),
    ],
)
def test_a_target_is_checked_before_anything_runs(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        PluginHost.load().agent("function", options)


def test_packages_may_need_each_other_and_be_the_client() -> None:
    made: Any = PluginHost.load().agent("function", {"target": f"{FILE}:plain", "packages": ["cattrs", "attrs", "OpenAI"]})
    assert {"openai", "cattrs", "attr"} <= {path.name for path in made._folders}


def test_a_module_of_a_package_brings_its_requirements() -> None:
    made: Any = PluginHost.load().agent("function", {"target": "hypothesis.core:given"})
    names = {path.name for path in made._folders}
    assert made._source.name == "hypothesis"
    assert {"openai", "sortedcontainers"} <= names
    assert not any(name.startswith("longrein") for name in names)
