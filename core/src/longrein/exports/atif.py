"""Rollouts as documents of the Agent Trajectory Interchange Format (ATIF v1.7), which trace viewers read."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from longrein.exports.left_out import LeftOut
from longrein.model import ModelCall, Rollout, Turn
from longrein.turns import messages as msg

VERSION = "ATIF-v1.7"
UNKNOWN = "unknown"
"""Version of an agent that has no toolchain; the format requires one."""


def trajectory(rollout: Rollout, *, reward: float | None, model: str | None) -> Iterator[dict[str, Any] | LeftOut]:
    """Yield the document of a rollout, or why there is none.

    Each model call is an agent step, whatever its label, which stands in the step's `extra`. Before it come the messages that are
    new in its request; answers of tools are observations of the step that called them. What a rewritten history repeats is marked
    `is_copied_context`.

    Args:
        rollout: any, also a failed or unscorable one.
        reward: the final one.
        model: name of the policy.
    """
    if not len(rollout.trajectory):
        yield LeftOut("no model call")
        return
    steps = _Steps()
    for turn in rollout.trajectory:
        steps.add(turn)
    tools = {json.dumps(tool, sort_keys=True): tool for tools in rollout.trajectory.tools.values() for tool in tools}
    yield {
        "schema_version": VERSION,
        "session_id": rollout.id,
        "trajectory_id": rollout.id,
        "agent": _known(
            name=rollout.agent,
            version=rollout.session.sandbox.get("agent_version") or UNKNOWN,
            model_name=rollout.policy or model,
            tool_definitions=list(tools.values()) or None,
        ),
        "steps": steps.steps,
        "final_metrics": steps.totals(),
        "extra": _about(rollout, reward),
    }


def _about(rollout: Rollout, reward: float | None) -> dict[str, Any]:
    return {
        "taskset": rollout.taskset,
        "task_id": rollout.task_id,
        "group_id": rollout.group_id,
        "sample": rollout.sample,
        "phase": rollout.phase,
        "outcome": rollout.outcome.kind,
        "outcome_reason": rollout.outcome.reason,
        "verdict": rollout.verdict.status,
        "score": rollout.verdict.score,
        "reward": reward,
        "wall_s": rollout.session.wall_s,
    }


class _Steps:
    """The steps of a document, filled call by call."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []
        self._seen: set[Hashable] = set()
        self._n_messages: dict[str, int] = {}

    def add(self, turn: Turn) -> None:
        """Append what a call's request holds anew, and its reply."""
        call = turn.call
        goes_on = call.messages_base is not None and self._n_messages.get(call.messages_base) == call.messages_kept
        self._n_messages[call.id] = call.messages_kept + len(call.messages)
        for number, message in enumerate(call.messages):
            self._hear(message, f"{call.id}.{number}", goes_on=goes_on)
        reply = {**call.reply, "role": "assistant"}
        self._seen.add(msg.identity(reply))
        self._step("agent", reply, call.id, llm_call_count=1, metrics=_metrics(call), extra=_extra(turn))

    def totals(self) -> dict[str, Any]:
        """Return the sums over all calls."""
        metrics = [step["metrics"] for step in self.steps if "metrics" in step]
        return {
            "total_prompt_tokens": sum(values["prompt_tokens"] for values in metrics),
            "total_completion_tokens": sum(values["completion_tokens"] for values in metrics),
            "total_steps": len(self.steps),
        }

    def _hear(self, message: msg.Message, name: str, *, goes_on: bool) -> None:
        role, identity = msg.role(message), msg.identity(message)
        again = identity in self._seen
        self._seen.add(identity)
        copied = (again and not goes_on) or None
        if role == "assistant":
            if not (again and goes_on):  # else it is the echo of a reply that is a step already
                self._step("agent", message, name, is_copied_context=True)
        elif role == "tool":
            self._observe(message, copied)
        else:
            self._step("system" if role == "system" else "user", message, name, is_copied_context=copied)

    def _step(self, source: str, message: msg.Message, name: str, **values: Any) -> None:
        if source == "agent":
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            values["reasoning_content"] = reasoning if isinstance(reasoning, str) else None
            values["tool_calls"] = _tool_calls(message, name) or None
        self.steps.append(_known(step_id=len(self.steps) + 1, source=source, message=_text(message), **values))

    def _observe(self, message: msg.Message, copied: bool | None) -> None:
        call_id = message.get("tool_call_id")
        result = {"content": _text(message)}
        for step in reversed(self.steps):
            if any(call["tool_call_id"] == call_id for call in step.get("tool_calls", ())):
                results = step.setdefault("observation", {"results": []})["results"]
                if not any(known.get("source_call_id") == call_id for known in results):
                    results.append({"source_call_id": call_id, **result})
                    return
        self._step("system", {"content": ""}, "", observation={"results": [result]}, is_copied_context=copied)


def _metrics(call: ModelCall) -> dict[str, Any]:
    sampled, sound = list(call.sampled_ids), call.problem is None and bool(call.sampled_ids)
    given = call.usage
    return _known(
        prompt_tokens=call.prompt_len if given.prompt_tokens is None else given.prompt_tokens,
        completion_tokens=len(sampled) if given.completion_tokens is None else given.completion_tokens,
        completion_token_ids=sampled if sound else None,
        logprobs=list(call.logprobs) if sound else None,
    )


def _extra(turn: Turn) -> dict[str, Any]:
    call = turn.call
    return _known(
        call_id=call.id,
        parent_id=call.parent_id,
        label=turn.label.label,
        reason=turn.label.reason,
        decided_by=turn.decided_by,
        finish_reason=call.finish_reason,
        policy_version=call.version_first,
        started_s=call.started_s,
        ended_s=call.ended_s,
        delivered=call.delivered,
        error=call.error,
        problem=call.problem,
    )


def _tool_calls(message: msg.Message, name: str) -> list[dict[str, Any]]:
    found = []
    for number, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        given = function.get("arguments")
        arguments = _object(given)
        made = {"tool_call_id": str(call.get("id") or f"{name}.{number}"), "function_name": str(function.get("name") or "")}
        extra = {} if arguments is not None else {"extra": {"arguments": given}}  # what the policy wrote is no object
        found.append({**made, "arguments": arguments or {}, **extra})
    return found


def _object(arguments: Any) -> Mapping[str, Any] | None:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return None
    return arguments if isinstance(arguments, Mapping) else None


def _text(message: msg.Message) -> str:
    """Return the text of a message; parts that are not text are named by their type."""
    content = message.get("content")
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    parts = (part if isinstance(part, Mapping) else {"text": part} for part in content)
    return "\n".join(str(part["text"]) if "text" in part else f"[{part.get('type')}]" for part in parts)


def _known(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
