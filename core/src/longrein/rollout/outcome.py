"""How a session ended, decided from model calls and the process, never from the exit code alone."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from longrein.model import ModelCall, Outcome


@frozen
class Ending:
    """What the engine saw of a session's end."""

    ended_by: str
    """"exit", "timeout", "stalled", "reply_timeout", "budget", "stale", "environment", or "killed" from outside."""
    exit_code: int | None
    calls: Sequence[ModelCall]
    calls_model: bool
    """What the adapter declares."""
    budget_stop: str | None = None
    stale: str | None = None
    context_overflow: bool = False
    needs_tokens: bool = True
    """True when calls are to be trained, so that a capture without sound tokens is useless."""
    stderr_tail: str = ""


def decide_outcome(end: Ending) -> Outcome:
    """Return the outcome of a session; the first rule that holds decides."""
    replies = [call for call in end.calls if call.error is None]
    # A call cancelled because its client had gone is no error of the engine's.
    errors = [call for call in end.calls if call.error is not None and call.delivered]
    acted = bool(replies) or not end.calls_model
    if end.ended_by == "killed":
        return Outcome("sandbox_error", "the session's first process was killed from outside")
    if end.stale is not None:
        return Outcome("stale", end.stale)
    if end.ended_by == "reply_timeout":
        return Outcome("llm_error", "the policy server did not answer a request in time")
    if end.context_overflow:
        return Outcome("context_overflow", _error(errors) or "the prompt outgrew the model's context", acted=acted)
    if errors and max(errors, key=_index).index > max((call.index for call in replies), default=-1):
        return Outcome("llm_error", f"the last model call failed: {_error(errors)}")
    if end.budget_stop is not None:
        return Outcome("budget_exceeded", end.budget_stop, acted=acted)
    if end.ended_by == "timeout":
        return Outcome("timeout", "the session reached its time limit", acted=acted)
    if end.ended_by == "stalled":
        return Outcome("stalled", "no model call and none pending until the idle limit", acted=acted)
    if end.exit_code != 0:
        return Outcome("agent_error", f"exit code {end.exit_code}: {_last_line(end.stderr_tail)}", acted=acted)
    if not acted:
        return Outcome("no_model_calls", "the agent ended without a model call")
    if end.needs_tokens and replies and all(call.problem for call in replies):
        return Outcome("capture_invalid", f"no reply can be trained: {replies[0].problem}")
    return Outcome("completed")


def _index(call: ModelCall) -> int:
    return call.index


def _error(errors: Sequence[ModelCall]) -> str:
    return (errors[-1].error or "")[:300] if errors else ""


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no output on stderr"
