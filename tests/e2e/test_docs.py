"""The code in README and docs runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from longrein import api
from longrein.agent import AgentAdapter
from longrein.config import from_mapping
from longrein.plugins import PluginHost
from longrein.testing.scripted import Reply, ScriptedServer

ROOT = Path(__file__).resolve().parents[2]
COMMAND = re.compile(r"longrein ([a-z]+)((?: --?[a-z-]+| [^\s#`]+)*)")


def blocks(name: str, language: str) -> list[str]:
    """Return the code blocks of a file."""
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.S)


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


@pytest.mark.usefixtures("nothing_left")
def test_the_worked_adapter_solves_a_task(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text(blocks("docs/write-an-adapter.md", "python")[0])
    host = PluginHost.load(("./my_agent.py",), folder=tmp_path)
    tasks = host.taskset("practice", {"n": 1})
    program = tasks.solution(next(iter(tasks.tasks())).id)["solution.py"]  # type: ignore[index]
    with ScriptedServer(lambda _: Reply(program)) as server:
        config = from_mapping(
            {
                "taskset": {"name": "practice", "options": {"n": 1}},
                "agents": {"my-agent": {}},
                "policy": {"url": server.endpoint.url, "model": server.endpoint.model},
                "run": {"out": str(tmp_path / "run")},
            }
        )
        result = api.run(config, host=host)
    assert [rollout.verdict.status for rollout in result.rollouts] == ["passed"]


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


def test_commands_in_the_readme_and_docs_exist() -> None:
    import typer

    from longrein.cli.app import app

    commands: Any = typer.main.get_command(app)
    for block in [*blocks("README.md", ""), *blocks("docs/write-a-verifier.md", "")]:
        for name, rest in COMMAND.findall(block):
            assert name in commands.commands, name
            command = commands.commands[name]
            if hasattr(command, "commands"):
                command = command.commands[rest.split()[0]]
            known = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in rest.split() if word.startswith("--")} <= known, name + rest
