"""The task set "openenv" against openenv's own server code and classes as TRL takes them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import fields

from longrein.config import from_mapping
from longrein.environment import ToolError
from longrein.errors import ConfigError, EnvironmentFailed, LongreinError, TaskError
from longrein.model import Verdict
from longrein.options import structure
from longrein.plugins import PluginHost
from longrein.rollout.check import check_names
from longrein_openenv.options import OpenEnvOptions
from longrein_openenv.taskset import OpenEnvTasks

pytestmark = [pytest.mark.timeout(300), pytest.mark.filterwarnings("default")]  # openenv's server code warns of its own accord
CLASSES = Path(__file__).with_name("guess_class.py")
README = Path(__file__).parents[3] / "verifiers" / "openenv" / "README.md"


def tasks(**options: Any) -> OpenEnvTasks:
    """Return the task set with options."""
    return OpenEnvTasks(structure(OpenEnvOptions, {"seeds": 2, **options}, where="[taskset.options]"))


async def play(taskset: OpenEnvTasks, *calls: tuple[str, dict[str, Any]], task: str = "seed-1") -> tuple[list[str], Verdict]:
    """Play one episode; refusals are results too."""
    said = []
    async with taskset.environment(task) as environment:
        for name, arguments in calls:
            try:
                said.append(await environment.call(name, arguments))
            except ToolError as error:
                said.append(f"refused: {error}")
        return [environment.observation, *said], await environment.verdict()


async def test_a_server_s_tools_are_called_and_its_reward_is_the_verdict(guess_url: str) -> None:
    taskset = tasks(url=guess_url, prompt="Guess.", seeds=2)
    assert [(task.id, task.public.prompt) for task in taskset.tasks()] == [("seed-0", "Guess."), ("seed-1", "Guess.")]
    async with taskset.environment("seed-1") as environment:
        [tool] = environment.tools
    assert (tool.name, tool.description, tool.parameters["properties"]["number"]["type"]) == ("guess", "Guess the number.", "integer")
    (first, bad, right, late), verdict = await play(taskset, *(("guess", {"number": n}) for n in (7, 1, 1)))
    assert first == "\n\nNumbers 0 to 2; hint 1."
    assert bad.startswith("refused: ")
    assert "below 3" in bad
    assert (right, late) == ("right\nThe episode is over.", "refused: the episode is over")
    assert (verdict.status, verdict.score, verdict.details["reward"]) == ("passed", 1.0, 1.0)
    assert (await play(taskset, ("guess", {"number": 0})))[1].score == 0.0
    _, idle = await play(taskset)
    assert (idle.status, idle.score) == ("failed", 0.0)
    assert "took no step" in idle.reason


async def test_nothing_hidden_is_seen(guess_url: str) -> None:
    said, _ = await play(tasks(url=guess_url), ("guess", {"number": 0}))
    assert "secret" not in json.dumps(said)


async def test_an_unclean_reset_is_found_and_named(guess_url: str, spoil: Callable[[str], None]) -> None:
    spoil("unclean")
    with pytest.raises(EnvironmentFailed, match=r"'seed-1': reset is not clean.*Reset \d+.*Reset \d+"):
        await play(tasks(url=guess_url))


async def test_a_late_reward_arrives_or_does_not(guess_url: str, spoil: Callable[[str], None]) -> None:
    spoil("late")
    guess = ("guess", {"number": 1})
    _, verdict = await play(tasks(url=guess_url, reward="state"), guess)
    assert (verdict.status, verdict.score) == ("failed", 0.5)
    spoil("")
    with pytest.raises(EnvironmentFailed, match=r"had no reward 0\.2 s after the session"):
        await play(tasks(url=guess_url, reward="state", verdict_timeout_s=0.2), guess)


async def test_a_done_episode_without_a_reward_is_not_zero(guess_url: str, spoil: Callable[[str], None]) -> None:
    spoil("late")
    with pytest.raises(EnvironmentFailed, match="no step of it had a reward"):
        await play(tasks(url=guess_url), ("guess", {"number": 1}))


async def test_actions_are_one_tool_and_rewards_are_scaled(echo_url: str) -> None:
    step = ("step", {"message": "Hello"})
    taskset = tasks(url=echo_url, reward="sum", reward_range=[0, 2])
    async with taskset.environment("seed-0") as environment:
        [tool] = environment.tools
    assert list(tool.parameters["properties"]) == ["message"], "metadata is not for agents"
    (first, seen, _, bad), verdict = await play(taskset, step, step, ("step", {"massage": "x"}), task="seed-0")
    assert "Echo environment ready!" in first
    assert json.loads(seen)["echoed_message"] == "Hello"
    assert "message" in bad
    assert verdict.score == pytest.approx(0.5), "two rewards of 0.1 for each letter"
    with pytest.raises(EnvironmentFailed, match=r"reward 1 is outside reward_range = \[0, 0.9\]"):
        await play(tasks(url=echo_url, reward="sum", reward_range=[0, 0.9]), step, step, task="seed-0")


async def test_a_server_that_is_not_there_is_named() -> None:
    with pytest.raises(EnvironmentFailed, match="cannot use the environment server"):
        await play(tasks(url="http://127.0.0.1:9"))


def of_class(name: str, **options: Any) -> OpenEnvTasks:
    """Return the task set of one of the classes."""
    return tasks(environment_factory=f"{CLASSES}:{name}", prompt="Guess.", seeds=3, **options)


@pytest.mark.parametrize("name", ["GuessEnv", "Judged"])
async def test_a_trl_class_runs_unchanged(name: str) -> None:
    taskset = of_class(name)
    async with taskset.environment("seed-1") as environment:
        [tool] = environment.tools
        first = environment
    assert (tool.name, tool.description) == ("guess", "Guess the number.")
    assert tool.parameters["properties"]["number"] == {"type": "integer", "description": "The number to guess."}
    (begun, refused, said), verdict = await play(taskset, ("guess", {"number": 7}), ("guess", {"number": 1}))
    assert begun == " The number is between 0 and 2.", "right behind the prompt, as TRL has it"
    assert (refused, said) == ("refused: ValueError: the number is below 3", "right")
    assert (verdict.status, verdict.score) == ("passed", 1.0)
    assert (await play(taskset, ("guess", {"number": 1}), task="seed-2"))[1].score == 0.0
    async with taskset.environment("seed-1") as again:
        assert again is first, "made once, reset often"


async def test_a_judge_that_is_too_slow_gives_no_verdict() -> None:
    with pytest.raises(EnvironmentFailed, match=r"get_reward did not return within 0\.1 s"):
        await play(of_class("Slow", verdict_timeout_s=0.1), ("guess", {"number": 1}))


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("Unclean", EnvironmentFailed, r"reset is not clean.*Reset 1\..*Reset 2\."),
        ("Lost", EnvironmentFailed, "tool 'guess' lost its connection: connection refused"),
        ("Unhinted", ConfigError, "method guess of environment class Unhinted cannot be a tool"),
        ("Tempting", ConfigError, "name it get_reward"),
        ("GuessEnf", ConfigError, "did you mean 'GuessEnv'"),
    ],
)
async def test_a_class_that_cannot_be_used_is_named(name: str, error: type[LongreinError], words: str) -> None:
    with pytest.raises(error, match=words):
        await play(of_class(name), ("guess", {"number": 1}))


async def test_a_call_that_was_given_up_leaves_no_verdict_and_no_instance() -> None:
    taskset = of_class("Stuck", call_timeout_s=0.1)
    async with taskset.environment("seed-1") as environment:
        with pytest.raises(EnvironmentFailed, match=r"tool 'guess' did not return within 0\.1 s"):
            await environment.call("guess", {"number": 1})
        with pytest.raises(EnvironmentFailed, match="at work on a call"):
            await environment.verdict()
    async with taskset.environment("seed-1") as another:
        assert another is not environment


async def test_a_server_that_does_not_start_says_why() -> None:
    taskset = tasks(server="no_such_package:app")
    with pytest.raises(EnvironmentFailed, match=r"'no_such_package:app' ended with exit code 1: .*no_such_package"):
        await play(taskset)
    taskset.close()


async def test_rows_name_their_environment_and_reset_gets_them(tmp_path: Path) -> None:
    rows = [
        {"id": "a", "prompt": [{"role": "user", "content": "Guess it."}], "seed": 2, "environment": "guess"},
        {"seed": 0, "environment": "x"},
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    taskset = tasks(environment_factory={"guess": f"{CLASSES}:GuessEnv"}, tasks=str(tmp_path / "rows.jsonl"))
    assert [(task.id, task.public.prompt) for task in taskset.tasks()] == [("a", "Guess it."), ("row-2", "")]
    assert (await play(taskset, ("guess", {"number": 2}), task="a"))[1].status == "passed"
    with pytest.raises(LongreinError, match="unknown environment 'x'; known: guess"):
        await play(taskset, task="row-2")
    (tmp_path / "rows.jsonl").write_text("[1]\n")
    with pytest.raises(TaskError, match="line 1 must be an object"):
        list(tasks(environment_factory="m:C", tasks=str(tmp_path / "rows.jsonl")).tasks())


async def test_the_class_of_the_readme_runs_and_its_configs_are_read(tmp_path: Path) -> None:
    text = README.read_text(encoding="utf-8")
    [block] = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "guess.py").write_text(block)
    server, factory = (tomllib.loads(block)["taskset"]["options"] for block in re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S))
    assert len(list(tasks(**server).tasks())) == 64
    taskset = tasks(**{**factory, "environment_factory": str(tmp_path / factory["environment_factory"])})
    assert (await play(taskset, ("guess", {"number": 1})))[1].status == "passed"
    named = {name for cell in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)}
    assert named == {field.name for field in fields(OpenEnvOptions)}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "takes one of url, server and environment_factory, got none"),
        ({"url": "http://h", "server": "a:b"}, "got url, server"),
        ({"url": "http://h", "reward_range": [1, 0]}, "lowest and the highest"),
        ({"url": "http://h", "tasks": "/nowhere"}, "cannot read the tasks /nowhere"),
    ],
)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(LongreinError, match=words):
        list(tasks(**options).tasks())


def test_an_agent_without_mcp_is_refused_before_anything_is_spent() -> None:
    given = {"name": "openenv", "options": {"url": "http://127.0.0.1:9"}}
    host = PluginHost.load()
    check_names(from_mapping({"taskset": given, "agents": {"react": {}, "nop": {}}}), host)
    with pytest.raises(ConfigError, match=r"agent 'function' cannot use the tools.*agents that can: .*react"):
        check_names(from_mapping({"taskset": given, "agents": {"function": {"target": f"{CLASSES}:GuessEnv"}}}), host)


def test_the_options_that_a_task_carries_make_the_same_tasks(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"prompt": "p"}\n')
    [task] = tasks(url="http://h", tasks=str(tmp_path / "rows.jsonl"), reward_range=[0, 2]).tasks()
    assert [again.digest for again in tasks(**task.ref.options).tasks()] == [task.digest]
