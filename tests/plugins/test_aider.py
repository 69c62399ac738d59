"""The Aider adapter: its plan, what it reads, and one real session that fails its test first."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from longrein import api, toolchain
from longrein.agent import Session
from longrein.config import from_mapping
from longrein.model import Action, ModelCall, Outcome, PublicTask, SessionResult, Trajectory, Turn, TurnLabel
from longrein.plugins import PluginHost
from longrein.testing.scripted import Reply, ScriptedServer
from longrein_aider.adapter import Aider, AiderOptions

TOY = Path(__file__).parents[1] / "e2e" / "toy.py"


def session(**more: Any) -> Session:
    given: dict[str, Any] = {
        "task": PublicTask("-v do it", check="check.py"),
        "model": "m",
        "base_url": "http://127.0.0.1:1",
        "api_key": "key-1",
        "workdir": PurePosixPath("/work"),
        "home": PurePosixPath("/home/agent"),
        "python": PurePosixPath("/p"),
    } | more
    return Session(**given)


def test_the_plan_tests_edits_and_touches_nothing_else() -> None:
    plan = Aider().launch(session())
    argv = list(plan.argv)
    assert argv[argv.index("--test-cmd") + 1] == "/p check.py"
    assert argv[argv.index("--edit-format") + 1] == "whole"
    assert argv[-2:] == ["--message=-v do it", "solution.py"]
    assert {"--auto-test", "--no-git", "--no-auto-lint", "--yes-always", "--no-check-update", "--analytics-disable"} <= set(argv)
    assert plan.files == {"solution.py": "", "/home/agent/.aider/caches/model_prices_and_context_window.json": '{"-": {}}'}
    assert {name for name, value in plan.env.items() if "key-1" in value} == {"OPENAI_API_KEY"}
    assert "key-1" not in str(argv)


def test_options_and_tasks_without_examples() -> None:
    task = PublicTask("x", {"solution.py": "start"}, check="check.py")
    plan = Aider(AiderOptions(edit_format="diff", auto_test=False, auto_lint=True, git=True)).launch(session(task=task))
    assert {"--git", "--auto-lint", "diff"} <= set(plan.argv)
    assert not {"--auto-test", "--test-cmd", "--no-git"} & set(plan.argv)
    assert "solution.py" not in plan.files  # the task's own file is not emptied
    assert "--test-cmd" not in Aider().launch(session(task=PublicTask("x"))).argv


@pytest.mark.parametrize(
    ("system", "label"),
    [
        ("You are an expert software engineer that generates concise, one-line Git", "aux"),
        ("*Briefly* summarize this partial conversation about programming.", "aux"),
        ("Act as an expert software developer.", None),
    ],
)
def test_side_calls_are_known_by_their_system_prompt(system: str, label: str | None) -> None:
    call = ModelCall("c", 0, None, (), 0, (), (), messages=({"role": "system", "content": system}, {"role": "user", "content": "x"}))
    turn = Turn(call, TurnLabel("train", "structure"), "structure")
    found = Aider().classify(turn, Trajectory((turn,)))
    assert (found.label if found else None) == label


EDIT, RUN = Action("edit", "edit", "solution.py"), Action("run", "test")
APPLIED = "Applied edit to solution.py\n"


@pytest.mark.parametrize(
    ("stdout", "history", "actions"),
    [
        (f"hello\n{APPLIED}ok\n", "> aider --auto-test --test-cmd x", [EDIT, RUN]),
        (APPLIED, "> aider --auto-test --test-cmd x", [EDIT, RUN]),
        (f"{APPLIED}{APPLIED}wrong\n{APPLIED}ok\n", "> aider --auto-test --test-cmd x", [EDIT, EDIT, RUN, EDIT, RUN]),
        (f"{APPLIED}E999\nAttempt to fix lint errors? (Y)es\n{APPLIED}ok\n", "> aider --auto-test --test-cmd x", [EDIT, EDIT, RUN]),
        (f"{APPLIED}ok\n", "> aider --no-git", [EDIT]),
        (f"{APPLIED}ok\n", None, [EDIT]),
        ("", "> aider --auto-test --test-cmd x", []),
    ],
)
def test_actions_are_applied_edits_and_the_tests_after_them(stdout: str, history: str | None, actions: list[Action]) -> None:
    workspace = {".aider.chat.history.md": history.encode()} if history else {}
    result = SessionResult("s", "aider", Outcome("completed"), Trajectory(), stdout=stdout, workspace=workspace)
    assert Aider().actions(result) == actions


def script(request: dict[str, Any]) -> Reply:
    tried = any("print(3*int(input()))" in str(message["content"]) for message in request["messages"])
    return Reply(f"solution.py\n```\nprint({2 if tried else 3}*int(input()))\n```")


def test_a_real_session_reflects_on_its_failed_test(tmp_path: Path) -> None:
    toolchain.find("aider", Aider.toolchain)  # type: ignore[arg-type]
    with ScriptedServer(script) as server:
        made = from_mapping(
            {
                "taskset": {"name": "doubling", "limit": 1},
                "agents": {"aider": {}},
                "run": {"out": str(tmp_path / "run")},
                "plugins": {"use": [str(TOY)]},
                "policy": {"url": server.endpoint.url, "model": "scripted"},
            }
        )
        [rollout] = api.run(made, host=PluginHost.load((str(TOY),))).rollouts
    assert (rollout.outcome.kind, rollout.verdict.status) == ("completed", "passed"), rollout.session.stdout
    assert [action.kind for action in rollout.actions] == ["edit", "run", "edit", "run"]
    assert [turn.label.label for turn in rollout.trajectory] == ["train", "train"]
    assert "print(3*int(input()))" not in rollout.session.workspace["solution.py"].decode()
