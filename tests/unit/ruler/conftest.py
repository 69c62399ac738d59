"""A judge that is a real HTTP server with scripted answers, and rollouts for it to judge."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from attrs import field, frozen

from longrein.config import from_mapping
from longrein.model import Action, Group, ModelCall, Outcome, Reward, Rollout, SessionResult, Trajectory, Turn, TurnLabel, Verdict
from longrein.plugins import PluginHost
from longrein_ruler.reward import Ruler

KEY = "sk-the-judges-own-key"


@frozen
class Says:
    """One HTTP answer."""

    text: str | None = None
    """The assistant's text; None answers with `body`."""
    status: int = 200
    headers: Mapping[str, str] = field(factory=dict)
    body: str = ""
    usage: Any = field(factory=lambda: {"prompt_tokens": 1000, "completion_tokens": 100})
    finish: str = "stop"
    never: bool = False
    """The answer does not come."""


Script = Callable[[dict[str, Any], int], Says]


def ids(body: Mapping[str, Any]) -> list[str]:
    """Return the ids that a request shows, in its order."""
    return re.findall(r"^BEGIN \w+ attempt (\w+)$", body["messages"][1]["content"], re.MULTILINE)


def shown(body: Mapping[str, Any]) -> dict[str, str]:
    """Return id to text of the attempts in a request."""
    found = re.findall(r"^BEGIN (\w+) attempt (\w+)\n(.*?)^END \1$", body["messages"][1]["content"], re.MULTILINE | re.DOTALL)
    return {name: text for _, name, text in found}


def scores(values: Mapping[str, Any]) -> Says:
    """Return a whole answer."""
    return Says(json.dumps({name: {"explanation": f"worth {score}", "score": score} for name, score in values.items()}))


def by_worth(body: Mapping[str, Any], _number: int = 0) -> Says:
    """Score each attempt with the number that it says as its worth."""
    return scores({name: float(re.findall(r"worth (\d\.\d+)", text)[-1]) for name, text in shown(body).items()})


class ScriptedJudge:
    """Serves a script of (request, number of the request) from a thread of its own; keeps every request."""

    def __init__(self) -> None:
        self.script: Script = by_worth
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.over = threading.Event()
        judge = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                assert self.path == "/v1/chat/completions"
                judge.keys.append(self.headers.get("authorization"))
                judge.requests.append(body)
                says = judge.script(body, len(judge.requests))
                if says.never:
                    judge.over.wait()
                    return
                message = {"role": "assistant", "content": says.text}
                reply = {"choices": [{"message": message, "finish_reason": says.finish}], "usage": says.usage}
                data = (json.dumps(reply) if says.text is not None else says.body).encode()
                self.send_response(says.status)
                for name, value in {"content-length": str(len(data)), **says.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> ScriptedJudge:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def judge() -> Iterator[ScriptedJudge]:
    """A judge that scores attempts by the worth that they name."""
    with ScriptedJudge() as server:
        yield server


MakeRuler = Callable[..., Ruler]


@pytest.fixture
def ruler(judge: ScriptedJudge, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeRuler:
    """Make the reward as a config does, with a cache below `tmp_path`."""
    monkeypatch.setenv("JUDGE_KEY", KEY)

    def make(**options: Any) -> Ruler:
        given = {"url": judge.url, "model": "scripted", "api_key_env": "JUDGE_KEY", "cache": str(tmp_path / "cache"), **options}
        reward = from_mapping({"taskset": "t", "agents": {"a": {}}, "reward": {"name": "ruler", "options": given}}).reward
        made = PluginHost.load().reward(reward.name, reward.options)
        assert isinstance(made, Ruler)
        return made

    return make


SYSTEM = {"role": "system", "content": "You are a coding agent with a long system prompt."}
TASK = {"role": "user", "content": "Print 42."}


def turns(*replies: str, results: Sequence[str] = (), prompt: Mapping[str, Any] = TASK) -> Trajectory:
    """Return a session of replies, each acting through a tool but the last, with what the tools gave back."""
    made: list[Turn] = []
    asked: list[Mapping[str, Any]] = [SYSTEM, prompt]
    for index, text in enumerate(replies):
        call = {"id": f"c{index}", "type": "function", "function": {"name": "bash", "arguments": json.dumps({"command": text})}}
        last = index == len(replies) - 1
        reply = {"role": "assistant", "content": text} if last else {"role": "assistant", "content": "", "tool_calls": [call]}
        base = f"c{index - 1}" if made else None
        kept = len(asked) - 2 if made else 0
        model_call = ModelCall(
            id=f"c{index}",
            index=index,
            parent_id=base,
            context_ids=[1],
            prompt_len=1,
            sampled_ids=[2],
            logprobs=[-0.1],
            messages_base=base,
            messages_kept=kept,
            messages=tuple(asked[kept:]),
            reply=reply,
            tools_key="t",
        )
        made.append(Turn(model_call, TurnLabel("train", "own"), "structure"))
        result = results[index] if index < len(results) else f"result {index}"
        asked = [*asked, reply, {"role": "tool", "tool_call_id": f"c{index}", "content": result}]
    return Trajectory(tuple(made))


def rollout(number: int, trajectory: Trajectory, status: str = "failed", **verdict: Any) -> Rollout:
    """Return a graded rollout."""
    given = Verdict.unscorable("grader broke") if status == "unscorable" else Verdict(status, float(status == "passed"), **verdict)  # type: ignore[arg-type]
    ended = SessionResult(f"s{number}", "a", Outcome("completed"), trajectory)
    return Rollout(f"r{number}", "g", "a", "set", "t", "d", number, 0, ended, given, (Action("run"), Action("edit")))


def worth(*values: float, status: Sequence[str] = ()) -> Group:
    """Return a group whose rollouts name what they are worth."""
    each = [*status, *["failed"] * len(values)]
    return group(*(rollout(i, turns(f"try {i}", f"worth {value}"), each[i]) for i, value in enumerate(values)))


def group(*rollouts: Rollout) -> Group:
    """Return rollouts as a group."""
    return Group("g", "a", "set", "t", rollouts)


async def score(reward: Ruler, scored: Group) -> dict[str, Reward]:
    """Return the final rewards of a group as the engine gets them."""
    host, findings = PluginHost.load(), []
    before = {r.id: await host.compute_reward(r, reward, findings) for r in scored.rollouts}
    after = await host.score_group(scored, before, reward, findings)
    assert findings == []
    return dict(after)
