"""The way from capture to the policy: sampling of the policy, a record of every call."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Mapping
from typing import Any

import attrs
import httpx
from openenv.core.harness.capture.contract import BUDGET_STOP_MESSAGE
from openenv.core.harness.capture.upstream import (
    InferenceClient, UpstreamError, UpstreamHTTPError, UpstreamTransportError, auth_headers, normalize_response, prepare_request,
)

from longrein.capture.checks import finite, ids_of, problem_of
from longrein.capture.endpoint import PolicyEndpoint
from longrein.capture.session import EXCHANGE, Exchange
from longrein.config import SamplingConfig
from longrein.model import ModelCall, Usage

_CARRIED = ("model", "messages", "tools", "tool_choice", "parallel_tool_calls", "stop", "response_format", "logit_bias",
            "reasoning_effort", "chat_template_kwargs")
"""Request keys that go upstream as the agent wrote them; all others are the policy's business or mean nothing to an engine."""
_CONSTRAINTS = ("logit_bias", "allowed_token_ids", "bad_words", "structured_outputs", "guided_json", "guided_regex", "guided_choice",
                "guided_grammar", "min_tokens", "ignore_eos", "logits_processors")
_OVERFLOW = ("maximum context length", "maximum model length", "context_length_exceeded", "context window")
_MAX_ERROR_CHARS = 500


class RefusedRequest(UpstreamHTTPError):
    """A request that cannot be trained from; the agent gets its text with status 400."""

    def __init__(self, message: str) -> None:
        super().__init__(400, None)
        self.message = message

    def __str__(self) -> str:
        return self.message


class PolicyClient(InferenceClient):  # type: ignore[misc]
    """openenv's upstream client, with our sampling, budgets and records.

    Args:
        endpoint: where the policy is.
        sampling: the policy's sampling; it replaces whatever the agent asks for.
        training: refuse requests that constrain logits.
        max_reply_tokens: longest reply.
    """

    def __init__(self, endpoint: PolicyEndpoint, *, sampling: SamplingConfig, training: bool, max_reply_tokens: int) -> None:
        super().__init__(endpoint.url, served_model=endpoint.model, api_key=endpoint.api_key, capture_level=endpoint.level)
        self.version = 0
        self._endpoint, self._training, self._max_reply_tokens = endpoint, training, max_reply_tokens
        self._sampling = _sampling_values(sampling, exact=endpoint.level == "tokens")

    async def _get_client(self) -> httpx.AsyncClient:
        if self._client is None:
            uds = self._endpoint.uds
            self._client = httpx.AsyncClient(
                base_url=self._endpoint.url, headers=auth_headers(self.api_key), limits=httpx.Limits(max_connections=None),
                timeout=httpx.Timeout(self._LIVENESS_TIMEOUT_S, connect=self._CONNECT_TIMEOUT_S),
                transport=httpx.AsyncHTTPTransport(uds=str(uds), limits=httpx.Limits(max_connections=None)) if uds else None,
            )
        return self._client

    async def list_models(self) -> dict[str, Any]:
        """Return the one model there is, without asking upstream: agents may ask before every call."""
        return {"object": "list", "data": [{"id": self._endpoint.model, "object": "model", "owned_by": "longrein",
                                            "max_model_len": self._endpoint.max_model_len}]}

    async def completion(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one chat request of the session in the current context, and record it."""
        exchange = EXCHANGE.get()
        session = exchange.session
        index = exchange.index = session.take_call()
        if index is None:
            return _stop_reply(self._endpoint.model)
        record = _Record(exchange, index, request, self.version)
        session.pending += 1
        try:
            self._refuse_constraints(request)
            reply = await self._ask(self._body(request, index, session.seed, session.tokens_left), record)
        except asyncio.CancelledError:
            record.fail("cancelled: the client had gone" if exchange.gone else "cancelled: the session was closed", self.version)
            raise
        except UpstreamError as error:
            message = str(error)[:_MAX_ERROR_CHARS]
            session.count_error(message)
            record.fail(message, self.version)
            if _is_overflow(error):
                session.context_overflow = True
                return _stop_reply(self._endpoint.model)
            raise
        finally:
            session.pending -= 1
        record.succeed(reply, self.version, tokens=self.capture_level == "tokens")
        return _for_agent(reply, request)

    def _refuse_constraints(self, request: Mapping[str, Any]) -> None:
        if not self._training:
            return
        found = [key for key in _CONSTRAINTS if request.get(key)]
        form = request.get("response_format")
        if form and not (isinstance(form, dict) and form.get("type") == "text"):
            found.append("response_format")
        if request.get("tool_choice") not in (None, "auto", "none"):
            found.append("tool_choice")
        if found:
            raise RefusedRequest(f"this endpoint trains a model and cannot constrain its replies: leave out {', '.join(found)}"
                                 " (tool_choice may be \"auto\" or \"none\")")

    def _body(self, request: Mapping[str, Any], index: int, seed: int, tokens_left: int) -> dict[str, Any]:
        body = {key: request[key] for key in _CARRIED if request.get(key) is not None}
        body = prepare_request(body, capture_level=self.capture_level)
        asked = [request[key] for key in ("max_tokens", "max_completion_tokens") if type(request.get(key)) is int and request[key] > 0]
        body["max_tokens"] = min([self._max_reply_tokens, tokens_left, *asked])
        # A retry of the same request is another sample.
        body["seed"] = (seed * 1_000_003 + index) % 2**31
        return body | self._sampling

    async def _ask(self, body: dict[str, Any], record: _Record) -> dict[str, Any]:
        record.max_tokens = body["max_tokens"]
        # Fixes for picky endpoints drop parameters; in training every parameter counts.
        post = self._post_with_retries if self._training else self._post
        try:
            reply = await post("/chat/completions", body)
            if not isinstance(reply["choices"][0]["message"], dict):
                raise TypeError("message")
        except (ValueError, LookupError, TypeError) as error:
            raise UpstreamTransportError(f"the engine's reply is no chat completion ({type(error).__name__}: {error})") from error
        return normalize_response(reply)  # type: ignore[no-any-return]


class _Record:
    """A call under way; becomes a ModelCall however it ends."""

    def __init__(self, exchange: Exchange, index: int, request: Mapping[str, Any], version: int) -> None:
        self._exchange, self._version = exchange, version
        session = exchange.session
        messages = request.get("messages")
        self._messages = messages if isinstance(messages, list) else []
        tools = request.get("tools")
        self.max_tokens: int | None = None
        self._call = ModelCall(
            id=f"c{index}", index=index, parent_id=None, context_ids=(), prompt_len=0, sampled_ids=(), logprobs=(),
            tools_key=session.trace.add_tools(tools) if tools else None, dialect=exchange.dialect,
            requested_sampling={key: value for key, value in request.items() if key not in _CARRIED and key != "stream"},
            started_s=exchange.started - session.began,
        )

    def fail(self, error: str, version: int) -> None:
        self._add([], version, error=error)

    def succeed(self, reply: dict[str, Any], version: int, *, tokens: bool) -> None:
        choice = reply["choices"][0]
        entries = (choice.get("logprobs") or {}).get("content") or []
        logprobs = [entry.get("logprob") if isinstance(entry, dict) else None for entry in entries]
        usage = reply.get("usage") or {}
        n_reported = usage.get("completion_tokens")
        prompt_ids, sampled_ids = ids_of(reply.get("prompt_token_ids")), ids_of(choice.get("token_ids"))
        self._exchange.session.count_reply(n_reported or len(sampled_ids))
        versions = reply.get("longrein") or {}
        self._version = versions.get("version_first", self._version)
        self._add(
            prompt_ids, versions.get("version_last", version), sampled_ids=sampled_ids, logprobs=finite(logprobs),
            usage=Usage(usage.get("prompt_tokens"), n_reported), finish_reason=choice.get("finish_reason"),
            reply={key: value for key, value in choice["message"].items() if value is not None},
            problem=problem_of(reply.get("prompt_token_ids"), choice.get("token_ids"), logprobs, n_reported) if tokens else None,
        )

    def _add(self, prompt_ids: list[int], version: int, **values: Any) -> None:
        session = self._exchange.session
        call = attrs.evolve(
            self._call, version_first=self._version, version_last=version, ended_s=time.monotonic() - session.began,
            max_tokens=self.max_tokens, delivered=not self._exchange.gone, **values,
        )
        session.trace.add(call, prompt_ids, self._messages)


def _sampling_values(sampling: SamplingConfig, *, exact: bool) -> dict[str, Any]:
    # An engine that returns ids is ours and may take defaults from the model's folder: every value is sent. Hosted ones refuse
    # parameters they do not know.
    values = attrs.asdict(sampling)
    neutral = attrs.asdict(SamplingConfig())
    return values if exact else {key: value for key, value in values.items() if key == "temperature" or value != neutral[key]}


def _is_overflow(error: UpstreamError) -> bool:
    text = str(error.body if isinstance(error, UpstreamHTTPError) else "").lower()
    return isinstance(error, UpstreamHTTPError) and error.status_code == 400 and any(mark in text for mark in _OVERFLOW)


def _for_agent(reply: dict[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Take out what only capture needs."""
    for key in ("prompt_token_ids", "longrein"):
        reply.pop(key, None)
    for key in ("token_ids", "prompt_token_ids") + (() if request.get("logprobs") else ("logprobs",)):
        reply["choices"][0].pop(key, None)
    return reply


def _stop_reply(model: str) -> dict[str, Any]:
    # An empty message reads as a failed generation, and agents then ask again.
    message = {"role": "assistant", "content": BUDGET_STOP_MESSAGE}
    return {"id": f"stop-{uuid.uuid4().hex[:12]}", "object": "chat.completion", "created": int(time.time()), "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}
