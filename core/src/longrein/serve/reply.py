"""A reply while it grows: its text, where a stop string cuts it, and its OpenAI forms."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from typing import Any

from attrs import define, field

from longrein.serve.request import ChatRequest
from longrein.serve.scheduler import Job, Step
from longrein.serve.template import CALL_OPEN, ChatTemplate, parse_tool_calls

FLOOR = -9999.0
"""Stands for minus infinity, which JSON cannot hold, in the alternatives of a truncated distribution."""


@define(eq=False)
class Reply:
    """Follows one job's tokens. `add` runs in the scheduler's thread, the rest in the server's."""

    template: ChatTemplate
    request: ChatRequest
    id: str = field(factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(factory=lambda: int(time.time()))
    text: str = ""
    """Decoded so far; only kept up when something needs it before the end."""
    stopped_at: int | None = None
    """Characters before the stop string."""
    _ids: list[int] = field(factory=list)
    _settled: int = 0
    """Tokens whose text is in `text`."""
    _base: int = 0
    """First token of the decoded window; it starts before `_settled` since decoders look back."""

    def add(self, step: Step) -> bool:
        """Take a token in; True when a stop string is complete."""
        if not (self.request.stream or self.request.sampling.stop):
            return False
        self._ids.append(step.token)
        before = self.template.decode(self._ids[self._base : self._settled])
        window = self.template.decode(self._ids[self._base :])
        if window.endswith("\ufffd") or len(window) <= len(before):
            return False  # a character of several tokens is not complete
        searched = len(self.text)
        self.text += window[len(before) :]
        self._base, self._settled = self._settled, len(self._ids)
        return self._find_stop(searched)

    def _find_stop(self, searched: int) -> bool:
        found = [at for stop in self.request.sampling.stop if (at := self.text.find(stop, max(0, searched - len(stop) + 1))) >= 0]
        self.stopped_at = min(found, default=None)
        return bool(found)

    def streamable(self) -> str:
        """Return the text that can be sent before the end: no stop string, tool call or part of one in it."""
        if self.stopped_at is not None:
            return self.text[: self.stopped_at]
        marks = [*self.request.sampling.stop, *([f"\n{CALL_OPEN}", CALL_OPEN] if self.request.parse_tools else [])]
        end = len(self.text)
        for mark in marks:
            if mark in self.text:
                end = min(end, self.text.index(mark))
            for size in range(min(len(mark), end), 0, -1):
                if self.text.endswith(mark[:size]):
                    end = min(end, len(self.text) - size)
                    break
        return self.text[:end]

    def message(self, job: Job) -> dict[str, Any]:
        """Return the assistant message of a finished job."""
        text = self.template.decode([step.token for step in job.steps]) if self.stopped_at is None else self.text[: self.stopped_at]
        content, calls = parse_tool_calls(text) if self.request.parse_tools else (text, [])
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls else "")}
        return {**message, "tool_calls": calls} if calls else message

    def body(self, job: Job, model: str) -> dict[str, Any]:
        """Return the whole reply of a finished job."""
        message = self.message(job)
        reason = "tool_calls" if "tool_calls" in message else job.done.result()
        choice = {"index": 0, "message": message, "finish_reason": reason, **self.details(job.steps)}
        prompt = {"prompt_token_ids": list(job.prompt)} if self.request.return_token_ids else {}
        return {**self.head("chat.completion", job, model), "choices": [choice], "usage": usage(job), **prompt}

    def head(self, kind: str, job: Job, model: str) -> dict[str, Any]:
        """Return the fields that every reply and chunk begins with."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": model,
            "longrein": {"version_first": job.version, "version_last": job.version},
        }

    def details(self, steps: Sequence[Step]) -> dict[str, Any]:
        """Return log-probabilities and ids of some tokens, as far as they were asked for."""
        ids = {"token_ids": [step.token for step in steps]} if self.request.return_token_ids else {}
        return {"logprobs": {"content": [_entry(step) for step in steps]} if self.request.logprobs else None, **ids}


def _entry(step: Step) -> dict[str, Any]:
    # Tokens are named by id: a token's text does not say which token it is.
    top = [{"token": f"token_id:{token}", "logprob": max(logprob, FLOOR), "bytes": None} for token, logprob in step.top]
    return {"token": f"token_id:{step.token}", "logprob": step.logprob, "bytes": None, "top_logprobs": top}


def usage(job: Job) -> dict[str, int]:
    """Return the token counts of a job."""
    n_prompt, n_sampled = len(job.prompt), len(job.steps)
    return {"prompt_tokens": n_prompt, "completion_tokens": n_sampled, "total_tokens": n_prompt + n_sampled}
