"""The code in README and docs runs."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from longrein import api
from longrein.agent import AgentAdapter
from longrein.config import from_mapping
from longrein.plugins import PluginHost
from longrein.testing.runs import TINY, write_run
from longrein.testing.scripted import Reply, ScriptedServer

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"longrein ([a-z]+)((?: --?[a-z-]+| [^\s#`]+)*)")


def blocks(name: str, language: str) -> list[str]:
    """Return the code blocks of a file in a language, "" for those without one."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)
    return [text for written_in, text in found if written_in == language]


@pytest.mark.usefixtures("nothing_left")
def test_python_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    found = blocks("README.md", "python")
    assert len(found) == 2
    spaces: list[dict[str, Any]] = [{}, {}]
    for block, space in zip(found, spaces, strict=True):
        exec(compile(block, "README.md", "exec"), space)
    assert capsys.readouterr().out.strip() == "1.0"
    (adapter,) = spaces[1]["longrein_agents"]()
    assert issubclass(adapter, AgentAdapter)
    assert len([line for line in found[1].splitlines() if line.strip()]) <= 20


@pytest.mark.usefixtures("nothing_left")
def test_python_in_the_page_on_comparisons_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = blocks("docs/compare.md", "python")
    exec(compile(block, "compare.md", "exec"), {})
    assert capsys.readouterr().out.strip() == "1.0 too few tasks"


def test_python_in_the_page_on_exports_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", {"aider": TINY}, tasks=4, samples=2)
    (block,) = blocks("docs/import-and-export.md", "python")
    exec(compile(block, "import-and-export.md", "exec"), {})
    assert capsys.readouterr().out.startswith("run/sft.jsonl ")


def solve(folder: Path, agents: dict[str, Any], *, use: tuple[str, ...] = ()) -> list[str]:
    """Run agents on a practice task whose solution is the policy's only answer, and return the verdicts."""
    host = PluginHost.load(use, folder=folder)
    tasks = host.taskset("practice", {"n": 1})
    program = tasks.solution(next(iter(tasks.tasks())).id)["solution.py"]  # type: ignore[index]
    with ScriptedServer(lambda _: Reply(program)) as server:
        config = from_mapping(
            {
                "taskset": {"name": "practice", "options": {"n": 1}},
                "agents": agents,
                "policy": {"url": server.endpoint.url, "model": server.endpoint.model},
                "run": {"out": str(folder / "run")},
            }
        )
        return [rollout.verdict.status for rollout in api.run(config, host=host).rollouts]


@pytest.mark.usefixtures("nothing_left")
def test_the_worked_adapter_solves_a_task(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(blocks("docs/write-an-adapter.md", "python")[0])
    assert solve(tmp_path, {"my-agent": {}}, use=("./my_agent.py",)) == ["passed"]


@pytest.mark.timeout(400)
@pytest.mark.usefixtures("nothing_left")
def test_the_worked_adapter_holds_to_its_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter, contract, _ = blocks("docs/write-an-adapter.md", "python")
    (tmp_path / "my_agent.py").write_text(adapter)
    monkeypatch.syspath_prepend(tmp_path)
    space: dict[str, Any] = {"__name__": "test_my_agent"}
    exec(compile(contract, "test_my_agent.py", "exec"), space)
    results = list(space["TestMyAgent"].results())
    assert not [result for result in results if result.state == "failed"]
    assert sum(result.state == "held" for result in results) >= 15


@pytest.mark.usefixtures("nothing_left")
def test_the_worked_function_solves_a_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_function.py").write_text(blocks("docs/write-an-adapter.md", "python")[2])
    monkeypatch.syspath_prepend(tmp_path)
    options = importlib.import_module("my_function").my_agent.options
    assert options == {"target": f"{tmp_path / 'my_function.py'}:my_agent"}
    assert solve(tmp_path, {"function": options}) == ["passed"]


@pytest.mark.usefixtures("nothing_left")
def test_the_worked_verifier_grades_the_oracle_and_nop(tmp_path: Path) -> None:
    (tmp_path / "sums.py").write_text(blocks("docs/write-a-verifier.md", "python")[0])
    (tmp_path / "solve.py").write_text(SOLVER)
    host = PluginHost.load(("./sums.py", "./solve.py"), folder=tmp_path)
    agents: dict[str, Any] = {"solve": {}, "nop": {}}
    result = api.run(from_mapping({"taskset": "sums", "agents": agents, "run": {"out": str(tmp_path / "run")}}), host=host)
    assert {rollout.agent: rollout.verdict.status for rollout in result.rollouts} == {"solve": "passed", "nop": "failed"}


SOLVER = """
import longrein
from longrein.agent import AgentAdapter, Capabilities, LaunchPlan

class Solve(AgentAdapter):
    name = "solve"
    capabilities = Capabilities(calls_model=False)

    def launch(self, session):
        return LaunchPlan(["true"], files={"solution.py": "print(sum(map(int, input().split())))"})

@longrein.hookimpl
def longrein_agents():
    return [Solve]
"""


PAGES = [str(path.relative_to(ROOT)) for path in (ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("*/*/README.md")))]
RUN = {
    "README.md": 2,
    "docs/write-an-adapter.md": 3,
    "docs/write-a-verifier.md": 1,
    "docs/hooks.md": 11,
    "docs/compare.md": 1,
    "docs/import-and-export.md": 1,
    "verifiers/openenv/README.md": 1,
}
"""Python blocks of a page that tests run or compare: here, and for hooks.md and openenv in tests/unit."""


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    import typer

    from longrein.cli.app import app

    commands: Any = typer.main.get_command(app)
    for block in blocks(page, ""):
        for name, rest in COMMAND.findall(block):
            assert name in commands.commands, name
            command = commands.commands[name]
            if hasattr(command, "commands"):
                command = command.commands[rest.split()[0]]
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in rest.split() if word.startswith("--")} <= known, name + rest


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_read(page: str) -> None:
    assert len(blocks(page, "python")) == RUN.get(page, 0), "a test must run each Python block; count it here then"
    for block in blocks(page, "toml"):
        values = tomllib.loads(block)
        if "project" not in values:  # a config, or a part of one
            base: dict[str, Any] = {"agents": {"nop": {}}} if "tasksets" in values else {"taskset": "practice", "agents": {"nop": {}}}
            config = from_mapping(base | values)
            for name, options in config.agents.items():
                if not (name == "function" and "my_package" in str(options)):
                    PluginHost.load().agent(name, options)
    for block in blocks(page, "json"):
        json.loads(block)
