"""The opencode adapter: its plan, what it reads, and one real session."""

from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from longrein import api, toolchain
from longrein.agent import McpServer, Session
from longrein.config import from_mapping
from longrein.model import Action, ModelCall, Outcome, PublicTask, SessionResult, Trajectory, Turn, TurnLabel
from longrein.plugins import PluginHost
from longrein.testing.scripted import Reply, ScriptedServer
from longrein_opencode.adapter import Opencode, OpencodeOptions

PROMPT = 'Write  solution.py: "say" 5 1e3 -v -- --title "x y" \'q\'\n- it prints 42 `ok` $HOME, "end"'


def session(**more: Any) -> Session:
    given: dict[str, Any] = {
        "task": PublicTask(PROMPT),
        "model": "m",
        "base_url": "http://127.0.0.1:1",
        "api_key": "key-1",
        "workdir": PurePosixPath("/work"),
        "home": PurePosixPath("/home/agent"),
        "python": PurePosixPath("/p"),
    } | more
    return Session(**given)


def config(plan_files: Any) -> Any:
    assert {path.rpartition("opencode/")[0] for path in plan_files} == {"/home/agent/.config/"}
    return json.loads(plan_files["/home/agent/.config/opencode/opencode.json"])


def test_the_config_has_one_provider_and_decides_every_permission() -> None:
    plan = Opencode().launch(session(max_model_len=30_000))
    made = config(plan.files)
    assert made["enabled_providers"] == list(made["provider"]) == ["longrein"]
    assert made["model"] == made["small_model"] == "longrein/m"
    assert made["provider"]["longrein"]["options"] == {"baseURL": "http://127.0.0.1:1/v1", "apiKey": "key-1"}
    assert made["provider"]["longrein"]["models"]["m"]["limit"] == {"context": 30_000, "output": 4096}
    assert made["permission"] == {"*": "allow", "question": "deny", "webfetch": "deny", "websearch": "deny", "codesearch": "deny"}
    assert (made["share"], made["autoupdate"]) == ("disabled", False)
    assert "key-1" not in str(plan.env) + str(plan.argv)


def test_an_environment_s_tools_come_from_an_mcp_server_of_its_config() -> None:
    found = config(Opencode().launch(session(mcp=McpServer(("/p", "tools.py", "/s"), {"KEY": "k"}))).files)
    assert found["mcp"] == {"env": {"type": "local", "command": ["/p", "tools.py", "/s"], "environment": {"KEY": "k"}, "timeout": 600_000}}
    assert "mcp" not in config(Opencode().launch(session()).files)


def test_options() -> None:
    plan = Opencode(OpencodeOptions(title=False, context=9_000, output=8_000)).launch(session(max_model_len=30_000))
    assert "--title" not in plan.argv
    assert config(plan.files)["provider"]["longrein"]["models"]["m"]["limit"] == {"context": 9_000, "output": 4_500}
    assert Opencode().launch(session()) == Opencode().launch(session())


@pytest.mark.parametrize(
    ("system", "label"),
    [
        ("You are a title generator. You output", "aux"),
        ("You are a context summarization agent. You", "aux"),
        ("Summarize what was done in this conversation. W", "aux"),
        ("You are opencode, an", None),
    ],
)
def test_side_calls_are_known_by_their_system_prompt(system: str, label: str | None) -> None:
    call = ModelCall("c", 0, None, (), 0, (), (), messages=({"role": "system", "content": system}, {"role": "user", "content": "x"}))
    turn = Turn(call, TurnLabel("train", "structure"), "structure")
    found = Opencode().classify(turn, Trajectory((turn,)))
    assert (found.label if found else None) == label


def test_actions_come_from_the_tool_calls_that_were_delivered() -> None:
    def turn(index: int, name: str, arguments: str, *, delivered: bool = True) -> Turn:
        reply = {"role": "assistant", "tool_calls": [{"function": {"name": name, "arguments": arguments}}]}
        call = ModelCall(str(index), index, None, (), 0, (), (), reply=reply, delivered=delivered)
        return Turn(call, TurnLabel("train", ""), "")

    turns = (
        turn(0, "read", '{"filePath": "a.py"}'),
        turn(1, "write", '{"filePath": "solution.py", "content": "x"}'),
        turn(2, "bash", '{"command": "python3 solution.py"}', delivered=False),
        turn(3, "bash", '{"command": "ls"}'),
        turn(4, "grep", '{"pattern": "x"}'),
        turn(5, "todowrite", "not json"),
        turn(6, "edit", "[1]"),
    )
    result = SessionResult("s", "opencode", Outcome("completed"), Trajectory(turns))
    assert Opencode().actions(result) == [
        Action("read", "read", "a.py"),
        Action("edit", "write", "solution.py"),
        Action("run", "bash", "ls"),
        Action("search", "grep", "x"),
        Action("other", "todowrite"),
        Action("edit", "edit"),
    ]


def script(request: dict[str, Any]) -> Reply:
    steps = [
        ("write", {"filePath": "/work/solution.py", "content": "print(42)\n"}),
        ("bash", {"command": "pwd; python3 solution.py; env | grep -c KEY", "description": "try"}),
    ]
    done = sum(message["role"] == "tool" for message in request["messages"])
    return Reply("", [steps[done]]) if done < len(steps) else Reply("Done.")


def test_a_real_session_gets_the_exact_prompt_and_its_tools_work(tmp_path: Path) -> None:
    toolchain.find("opencode", Opencode.toolchain)  # type: ignore[arg-type]
    task = tmp_path / "task"
    (task / "hidden").mkdir(parents=True)
    (task / "prompt.md").write_text(PROMPT)
    (task / "verify.sh").write_text('test "$(python3 solution.py)" = 42')
    with ScriptedServer(script) as server:
        made = from_mapping(
            {
                "taskset": f"{task}/",
                "agents": {"opencode": {}},
                "run": {"out": str(tmp_path / "run")},
                "policy": {"url": server.endpoint.url, "model": "scripted"},
                "limits": {"max_reply_tokens": 9000},
            }
        )
        [rollout] = api.run(made, host=PluginHost.load()).rollouts
    first, _, last = requests = [request for request in server.requests if request.get("tools")]
    assert first["messages"][-1] == {"role": "user", "content": PROMPT}
    assert (rollout.outcome.kind, rollout.verdict.status) == ("completed", "passed"), rollout.session.stderr
    assert [action.kind for action in rollout.actions] == ["edit", "run"]
    assert last["messages"][-1]["content"].splitlines()[:2] == ["/work", "42"]
    names = {tool["function"]["name"] for tool in requests[0]["tools"]}
    assert names == {"bash", "edit", "glob", "grep", "read", "skill", "task", "todowrite", "write"}
