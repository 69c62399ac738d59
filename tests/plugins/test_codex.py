"""The Codex adapter: its plan, what it reads, and one real session."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from typing import Any

from attrs import evolve

from longrein.agent import Session
from longrein.testing.scripted import Reply
from longrein_codex.adapter import Codex, CodexOptions


def config(session: Session, **options: Any) -> dict[str, Any]:
    [(path, text)] = Codex(CodexOptions(**options)).launch(session).files.items()
    assert path == "/home/agent/.codex/config.toml"
    return tomllib.loads(text)


def test_the_config_has_one_provider_and_asks_nobody(plan_session: Session) -> None:
    plan, made = Codex().launch(plan_session), config(plan_session)
    provider = made["model_providers"][made["model_provider"]]
    assert (provider["base_url"], provider["wire_api"], provider["env_key"]) == ("http://127.0.0.1:1/v1", "responses", "OPENAI_API_KEY")
    assert (made["approval_policy"], made["sandbox_mode"], made["web_search"]) == ("never", "danger-full-access", "disabled")
    assert (made["analytics"], made["feedback"], made["check_for_update_on_startup"]) == ({"enabled": False}, {"enabled": False}, False)
    assert made["model_reasoning_effort"] == "none"
    assert plan.argv[-2:] == ["--", plan_session.task.prompt]
    assert {name for name, value in plan.env.items() if "key-1" in value} == {"OPENAI_API_KEY"}
    assert "key-1" not in str(plan.argv) + str(plan.files)


def test_the_window_is_the_policys_or_the_options(plan_session: Session) -> None:
    assert config(plan_session)["model_context_window"] == 30_000
    assert config(plan_session, context=9_000)["model_context_window"] == 9_000
    assert config(evolve(plan_session, max_model_len=None))["model_context_window"] == 128_000


def test_compaction_is_asked_for_in_the_conversation(label_of: Callable[..., str | None]) -> None:
    before = [("system", "You are"), ("user", "x"), ("assistant", "y")]
    assert label_of(Codex(), *before, ("user", "You are performing a CONTEXT CHECKPOINT COMPACTION. Create a")) == "aux"
    assert label_of(Codex(), *before, ("user", "Go on.")) is None


def script(request: dict[str, Any]) -> Reply:
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: solution.py\n+print(42)\n*** End Patch\nEOF"
    steps = [
        Reply("I write it.", [("exec_command", {"cmd": patch})], reasoning="A patch will do."),
        Reply("Both.", [("exec_command", {"cmd": "python3 solution.py"}), ("exec_command", {"cmd": "ls /work"})]),
        Reply("Done."),
    ]
    return steps[sum(message["role"] == "assistant" for message in request["messages"])]


def test_a_real_session_is_one_row(play: Callable[..., Any]) -> None:
    played = play("codex", script)
    rollout = played.rollout
    assert (rollout.outcome.kind, rollout.verdict.status) == ("completed", "passed"), rollout.session.stdout
    assert [action.kind for action in rollout.actions] == ["edit", "run", "read"]
    assert [(turn.label.label, turn.call.dialect) for turn in rollout.trajectory] == [("train", "responses")] * 3
    assert [row.call_ids for row in played.rows] == [("c0", "c1", "c2")]
    first, _, last = played.requests
    assert first["messages"][-1] == {"role": "user", "content": played.prompt}
    assert [message["content"].splitlines()[-1] for message in last["messages"][-2:]] == ["42", "solution.py"]
    assert "chat_template_kwargs" not in first
    assert {tool["function"]["name"] for tool in first["tools"]} == {"exec_command", "write_stdin"}
