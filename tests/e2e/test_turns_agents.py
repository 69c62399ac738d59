"""Real agents against a scripted policy: the label of every call, by structure alone and with what the adapter knows."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.e2e.conftest import MakeConfig

from longrein import api
from longrein.model import PublicTask, Rollout
from longrein.plugins import PluginHost
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.turns import label_calls

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.timeout(240)]
WRONG, RIGHT = "print(3*int(input()))", "print(2*int(input()))"
SUB_TASK = "Find every file that reads standard input, and list their names."
SUMMARY = "## Objective\n- write solution.py, which doubles\n## Work State\n- a long command was run; the file is left to write"


def kinds(rollout: Rollout) -> list[tuple[str, str]]:
    """Return (label, what was asked) for each call, and check that structure alone says the same."""
    trajectory = rollout.trajectory
    task = PublicTask("Read an integer n and print 2*n")
    structural = label_calls([turn.call for turn in trajectory], trajectory.tools, task=task)
    assert [turn.label.label for turn in structural] == [turn.label.label for turn in trajectory]
    return [(turn.label.label, _kind(trajectory.messages(turn.call.id))) for turn in trajectory]


def _kind(messages: list[Any]) -> str:
    """Name a request by words of the agent's own prompts."""
    system, asked = str(messages[0]["content"]), json.dumps(messages[1:])
    for words, kind in (
        ("title generator", "title"),
        ("context summarization", "summary"),
        ("Git commit message", "commit"),
        ("*Briefly* summarize", "summary"),
    ):
        if words in system:
            return kind
    return "sub-agent" if SUB_TASK in asked and "variant" not in asked else "agent"


def opencode(request: dict[str, Any]) -> Reply:
    """Start a sub-agent in variant 0; make the context overflow in variant 1."""
    messages, tools = request["messages"], request.get("tools")
    asked = json.dumps(messages)
    if not tools:
        return Reply(SUMMARY if "context summarization" in asked else "Double a number")
    write = Reply("", [("write", {"content": RIGHT, "filePath": "/work/solution.py"})])
    if SUB_TASK in asked and "variant 0" not in asked:
        steps = [Reply("", [("bash", {"command": "ls", "description": "list"})]), Reply("Only solution.py is here, and it is empty now.")]
    elif "variant 0" in asked:
        spawn = {"description": "find files", "prompt": SUB_TASK, "subagent_type": "general"}
        steps = [Reply("", [("task", spawn)]), write, Reply("The program is written.")]
    elif "Objective" in asked:
        steps = [write, Reply("The program is written.")]
    else:
        flood = Reply("", [("bash", {"command": "seq 1 4000", "description": "count"})])
        steps = [flood, flood, Reply("I counted far.")]
    last_user = max(i for i, message in enumerate(messages) if message["role"] == "user")
    return steps[sum(message["role"] == "tool" for message in messages[last_user:])]


def aider(request: dict[str, Any]) -> Reply:
    """Write a wrong program first, so that its test fails; a long one in variant 1, so that the history is summarised."""
    messages = request["messages"]
    system, asked = str(messages[0]["content"]), json.dumps(messages)
    if "Git commit message" in system:
        return Reply("feat: print the double of an integer")
    if "*Briefly* summarize" in system:
        return Reply("I asked you to write solution.py, which doubles an integer, and you wrote a first version.")
    pad = "".join(f"# line {i} of padding that nobody needs\n" for i in range(200)) if "variant 1" in asked else ""
    edited = any(message["role"] == "assistant" and "int(input" in str(message["content"]) for message in messages)
    old, new = (WRONG, RIGHT) if edited else ("", WRONG)
    if "SEARCH/REPLACE" in system:
        return Reply(f"solution.py\n```python\n<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE\n```")
    return Reply(f"solution.py\n```\n{pad}{new}\n```")


def policy(request: dict[str, Any]) -> Reply:
    """Answer whichever agent asks."""
    prompts = ("You are opencode", "title generator", "context summarization")
    text = json.dumps(request["messages"])
    return opencode(request) if request.get("tools") or any(words in text for words in prompts) else aider(request)


def run(make: MakeConfig, host: PluginHost, agents: dict[str, dict[str, Any]], *sets: str) -> dict[tuple[str, str], Rollout]:
    with ScriptedServer(policy) as server:
        config = make(agents, server.endpoint.url, "limits.max_reply_tokens=20000", "limits.max_tokens=1000000", *sets)
        rollouts = api.run(config, host=host).rollouts
    assert all(rollout.verdict.status == "passed" for rollout in rollouts), rollouts
    return {(rollout.agent, rollout.task_id): rollout for rollout in rollouts}


def test_side_calls_sub_agents_compaction_commits_reflections_and_summaries(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    agents = {"opencode": {"title": False, "context": 45_000, "output": 2_000}, "aider": {"git": True}}
    found = run(toy_config, toy_host, agents, "limits.sessions=2")
    title, agent = ("aux", "title"), ("train", "agent")
    sub = [("train", "sub-agent")] * 2
    assert sorted(kinds(found["opencode", "double-0"])) == sorted([title, agent, *sub, agent, agent])
    compacted = kinds(found["opencode", "double-1"])
    assert sorted(compacted) == sorted([title, *[agent] * 5, ("aux", "summary")])
    assert [kind for _, kind in compacted if kind != "title"] == [*["agent"] * 3, "summary", "agent", "agent"]
    commit, summary = ("aux", "commit"), ("aux", "summary")
    assert sorted(kinds(found["aider", "double-0"])) == sorted([agent, agent, commit, commit, commit])
    long = kinds(found["aider", "double-1"])
    assert set(long) == {agent, commit, summary}
    assert long.count(agent) == 2


def test_aider_with_search_and_replace_blocks_and_opencode_with_a_title(toy_config: MakeConfig, toy_host: PluginHost) -> None:
    found = run(toy_config, toy_host, {"aider": {"edit_format": "diff"}, "opencode": {}}, "limits.sessions=2", "taskset.limit=1")
    assert kinds(found["aider", "double-0"]) == [("train", "agent")] * 2
    assert {label for label, _ in kinds(found["opencode", "double-0"])} == {"train"}
