"""A chat-completions body, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from longrein.serve.sampling import Sampling

NEUTRAL: dict[str, Any] = {
    "n": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "repetition_penalty": 1,
    "logit_bias": {},
    "response_format": {"type": "text"},
}
"""Fields this server understands only at the value that changes nothing."""
MAX_TOP_LOGPROBS = 20


class BadRequest(ValueError):
    """A request that cannot be answered; the text goes to the client."""

    def __init__(self, message: str, *, code: str = "invalid_request", status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


@frozen
class ChatRequest:
    """What the handler needs of a body; `max_tokens` of the sampling is not yet bounded by the model's length."""

    messages: Any
    tools: list[dict[str, Any]] | None
    parse_tools: bool
    sampling: Sampling
    logprobs: bool
    return_token_ids: bool
    stream: bool
    include_usage: bool

    @classmethod
    def parse(cls, body: Any, *, model: str, max_model_len: int) -> ChatRequest:
        """Structure a body.

        Raises:
            BadRequest: a field has a wrong type or value, or asks for what this server cannot do.
        """
        if not isinstance(body, dict):
            raise BadRequest("the body must be a JSON object")
        if body.get("model", model) != model:
            raise BadRequest(f"unknown model {body['model']!r}; this server has {model!r}", code="model_not_found", status=404)
        for key, neutral in NEUTRAL.items():
            if body.get(key) not in (None, neutral):
                raise BadRequest(f"{key}={body[key]!r} is not supported by this server; leave it out or send {neutral!r}")
        choice = body.get("tool_choice") or "auto"
        if choice not in ("auto", "none"):
            raise BadRequest(f"tool_choice={choice!r} is not supported by this server; known: auto, none")
        tools = body.get("tools") or None
        if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            raise BadRequest("tools must be a list of objects")
        return cls(
            messages=body.get("messages"),
            tools=tools,
            parse_tools=tools is not None and choice == "auto",
            sampling=_sampling(body, max_model_len),
            logprobs=bool(body.get("logprobs")),
            return_token_ids=bool(body.get("return_token_ids")),
            stream=bool(body.get("stream")),
            include_usage=bool((body.get("stream_options") or {}).get("include_usage")),
        )


def _sampling(body: Mapping[str, Any], max_model_len: int) -> Sampling:
    stop = body.get("stop") or []
    stop = (stop,) if isinstance(stop, str) else tuple(stop) if isinstance(stop, list) else None
    if stop is None or not all(isinstance(item, str) and item for item in stop):
        raise BadRequest(f"stop must be a text or a list of texts, got {body['stop']!r}")
    limit = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    seed = body.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise BadRequest(f"seed must be a whole number, got {seed!r}")
    return Sampling(
        temperature=_number(body, "temperature", 1.0, 0.0, 100.0),
        top_p=_number(body, "top_p", 1.0, 1e-9, 1.0),
        top_k=int(_number(body, "top_k", -1, -1, math.inf)),
        min_p=_number(body, "min_p", 0.0, 0.0, 1.0),
        seed=seed,
        stop=stop,
        max_tokens=int(_number(body, limit, max_model_len, 1, math.inf)),
        ignore_eos=bool(body.get("ignore_eos")),
        top_logprobs=int(_number(body, "top_logprobs", 0, 0, MAX_TOP_LOGPROBS)) if body.get("logprobs") else 0,
    )


def _number(body: Mapping[str, Any], key: str, default: float, low: float, high: float) -> float:
    value = body.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high or math.isinf(value):
        raise BadRequest(f"{key} must be a number from {low:g} to {high:g}, got {value!r}")
    return value
