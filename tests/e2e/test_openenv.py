"""Two steps of training in an OpenEnv environment, by the built-in loop and by opencode through MCP, side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longrein import api
from longrein.config import from_mapping
from longrein.practice import tokenizer as tokenizers
from longrein.practice.clone import Schedule, new_model, train
from longrein.practice.record import Exchange, Recording
from longrein.practice.transcripts import reply_text, rows_of
from longrein.rollout.record import read_rollouts
from longrein.serve.template import ChatTemplate
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.turns import build_rows

pytestmark = [
    pytest.mark.more,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("default"),
]  # openenv's server code warns of its own accord
UNIT = Path(__file__).parents[1] / "unit" / "openenv"
AGENTS: dict[str, Any] = {"react": {}, "opencode": {}}
NUMBERS = (0, 1, 2)


@pytest.fixture(scope="module")
def guess_url() -> Iterator[str]:
    """A running server with the guessing environment."""
    sys.path.insert(0, str(UNIT))
    try:
        from conftest import served  # type: ignore[import-not-found]
        from guess_server import app  # type: ignore[import-not-found]
    finally:
        sys.path.remove(str(UNIT))
    with served(app) as url:
        yield url


def config(url: str, out: Path, **sections: Any) -> Any:
    """Return a config of both agents on one task."""
    options = {"url": url, "prompt": "Guess the number.", "first_seed": 1}
    return from_mapping({"taskset": {"name": "openenv", "options": options}, "agents": AGENTS, "run": {"out": str(out)}, **sections})


def session(url: str, out: Path, number: int) -> dict[str, list[Exchange]]:
    """Record what each agent sends when the policy guesses `number`."""
    seen: dict[str, list[Exchange]] = {agent: [] for agent in AGENTS}

    def script(request: dict[str, Any]) -> Reply:
        name = next((t["function"]["name"] for t in request.get("tools") or () if t["function"]["name"].endswith("guess")), None)
        guessed = any(message["role"] == "tool" for message in request["messages"])
        reply = Reply("", [(name, {"number": number})]) if name and not guessed else Reply("Done.")
        if name:
            messages = [parsed(message) for message in request["messages"]]
            seen["react" if name == "guess" else "opencode"].append(Exchange(messages, request["tools"], reply))
        return reply

    with ScriptedServer(script) as server:
        api.run(config(url, out, policy={"url": server.endpoint.url, "model": "scripted"}))
    return seen


def parsed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with the arguments of its tool calls as objects, as the policy's template has them."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [{"type": "function", "function": {**f, "arguments": json.loads(f["arguments"])}} for f in functions]
    return {**message, "tool_calls": calls} if calls else message


def clone(sessions: list[dict[str, list[Exchange]]], folder: Path) -> Path:
    """Make a small policy that guesses each of the numbers as often."""
    recordings = [Recording(agent, sessions[0][agent], sessions[1][agent]) for agent in AGENTS]
    exchanges = [exchange for made in sessions for each in made.values() for exchange in each]
    blank = ChatTemplate(tokenizers.renderer())
    said = [reply_text(blank, exchange.reply).removesuffix(tokenizers.END) for exchange in exchanges]
    corpus = [*map(str, range(100)), *said, *(line for recording in recordings for line in tokenizers.varying_lines(recording) * 10)]
    tokenizer = tokenizers.build([text for recording in recordings for text in tokenizers.paragraphs(recording)], corpus)
    template = ChatTemplate(tokenizer)
    rows = [row for made in sessions for each in made.values() for row in rows_of(template, each)]
    model = new_model(tokenizer, seed=0)
    loss = train(model, rows, Schedule(steps=90, batch=6, warm_up=10), seed=0, log=print)
    assert loss < 0.5, "one of three numbers is the only choice in a session"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_two_steps_by_the_built_in_loop_and_by_opencode_through_mcp(guess_url: str, tmp_path: Path, nothing_left: Path) -> None:
    sessions = [session(guess_url, tmp_path / f"recorded-{number}", number) for number in NUMBERS]
    policy = clone(sessions, tmp_path / "scripted")  # the name of a model stands in prompts
    settings = {"max_steps": 2, "rows_per_step": 4, "group_size": 4, "learning_rate": 3e-4, "save_steps": 2}
    limits = {"sessions": 2, "max_calls": 4, "max_reply_tokens": 120}
    out = api.train(config(guess_url, tmp_path / "run", policy={"model": str(policy)}, train=settings, limits=limits))

    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in metrics if "canary/difference_mean" in entry] == [1, 2]
    rollouts = [rollout for rollout in read_rollouts(out) if rollout.phase == "train"]
    assert {rollout.agent for rollout in rollouts} == set(AGENTS)
    assert all(rollout.verdict.status != "unscorable" for rollout in rollouts), [rollout.outcome for rollout in rollouts]
    for agent in AGENTS:
        mine = [rollout for rollout in rollouts if rollout.agent == agent]
        assert any(rollout.verdict.details["n_steps"] for rollout in mine), "the policy plays"
        for rollout in mine:
            rows = build_rows(rollout.trajectory, rollout_id=rollout.id, agent=agent, token_budget=None).rows
            assert sum(row.n_trained for row in rows) == sum(len(turn.call.sampled_ids) for turn in rollout.trajectory)
    assert sum(bool(json.loads(line)["rows"]) for line in (out / "groups.jsonl").read_text().splitlines()) >= 2
