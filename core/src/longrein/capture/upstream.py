"""The way from capture to the policy: the policy's sampling, the session's budgets, a record of every call."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import attrs
from openenv.core.harness.capture.contract import BUDGET_STOP_MESSAGE
from openenv.core.harness.capture.upstream import UpstreamError, UpstreamHTTPError, prepare_request

from longrein.capture.checks import read_tokens
from longrein.capture.endpoint import PolicyEndpoint
from longrein.capture.engine import EngineClient
from longrein.capture.servers import Servers
from longrein.capture.session import EXCHANGE, Exchange
from longrein.config import SamplingConfig
from longrein.model import ModelCall

_CARRIED = (
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "stop",
    "response_format",
    "logit_bias",
    "reasoning_effort",
    "chat_template_kwargs",
)
"""Request keys that go upstream as the agent wrote them; all others are the policy's business or mean nothing to an engine."""
_CONSTRAINTS = (
    "logit_bias",
    "allowed_token_ids",
    "bad_words",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "min_tokens",
    "ignore_eos",
    "logits_processors",
)
_OVERFLOW = ("maximum context length", "maximum model length", "context_length_exceeded", "context window")
_MAX_ERROR_CHARS = 500


class _RefusedError(UpstreamHTTPError):  # type: ignore[misc]
    """A request that cannot be trained from; the agent gets its text with status 400."""

    def __init__(self, message: str) -> None:
        super().__init__(400)
        self.message = message

    def __str__(self) -> str:
        return self.message


class PolicyClient(EngineClient):
    """The client that answers openenv's capture app.

    Args:
        endpoint: where the policy is.
        sampling: the policy's sampling; it replaces whatever the agent asks for.
        training: refuse requests that constrain logits.
        max_reply_tokens: longest reply.
        tools: names of the tools that requests may offer; None allows any.
    """

    def __init__(
        self,
        endpoint: PolicyEndpoint,
        *,
        sampling: SamplingConfig,
        training: bool,
        max_reply_tokens: int,
        tools: Collection[str] | None = None,
    ) -> None:
        super().__init__(endpoint)
        self.servers = Servers(endpoint)
        self._training, self._tools = training, tools
        # Engines refuse a prompt that leaves no room for the longest reply asked for.
        self._max_reply_tokens = min(max_reply_tokens, (endpoint.max_model_len or 2**31) // 2)
        self._sampling = _sampling_values(sampling, every=endpoint.level == "tokens")

    @property
    def version(self) -> int:
        """The live policy version."""
        return self.servers.version

    @version.setter
    def version(self, version: int) -> None:
        self.servers.version = version

    async def aclose(self) -> None:
        """Close the connections to all servers."""
        await self.servers.aclose()
        await super().aclose()

    async def list_models(self) -> dict[str, Any]:
        """Return the one model there is, without asking upstream: agents may ask before every call."""
        return {
            "object": "list",
            "data": [{"id": self.endpoint.model, "object": "model", "owned_by": "longrein", "max_model_len": self.endpoint.max_model_len}],
        }

    async def completion(self, request: dict[str, Any]) -> dict[str, Any]:
        """Answer one chat request of the session in the current context, and record it."""
        exchange = EXCHANGE.get()
        session = exchange.session
        index = session.take_call()
        if index is None:
            return _stop_reply(self.endpoint.model)
        exchange.index = index
        asked = self.version
        record = _Record(exchange, index, request, asked)
        exchange.give_up = lambda why: record.fail(why, self.version, delivered=False)
        session.pending += 1
        try:
            _refuse_tools(request, self._tools)
            if self._training:
                _refuse_constraints(request)
            body = {**self._body(request, index, session.seed, session.tokens_left), "model": self.endpoint.model_at(asked)}
            record.max_tokens = body["max_tokens"]
            reply = await self.servers.ask(session, body, exact=self._training)
        except asyncio.CancelledError:
            exchange.leave("cancelled: the server stopped")
            raise
        except UpstreamError as error:
            record.fail(str(error)[:_MAX_ERROR_CHARS], self.version)
            session.count_error(str(error)[:_MAX_ERROR_CHARS])
            if _is_overflow(error):
                session.context_overflow = True
                return _stop_reply(self.endpoint.model)
            raise
        finally:
            session.pending -= 1
            exchange.give_up = None
        # An adapter that was asked for by its version samples the whole reply.
        record.succeed(reply, asked if self.endpoint.adapter else self.version, tokens=self.capture_level == "tokens")
        return _for_agent(reply, request)

    def _body(self, request: Mapping[str, Any], index: int, seed: int, tokens_left: int) -> dict[str, Any]:
        body = {key: request[key] for key in _CARRIED if request.get(key) is not None}
        asked = [request[key] for key in ("max_tokens", "max_completion_tokens") if type(request.get(key)) is int and request[key] > 0]
        # A retry of the same request is to be another sample, so each call has a seed of its own.
        seed = (seed * 1_000_003 + index) % 2**31
        prepare_request(body, capture_level=self.capture_level)
        return {**body, **self._sampling, "max_tokens": min([self._max_reply_tokens, tokens_left, *asked]), "seed": seed}


class _Record:
    """A call under way; becomes a ModelCall however it ends, and only once: a client may go as the reply comes."""

    def __init__(self, exchange: Exchange, index: int, request: Mapping[str, Any], version: int) -> None:
        self._exchange, self._trace = exchange, exchange.session.trace
        messages, tools = request.get("messages"), request.get("tools")
        self._messages = messages if isinstance(messages, list) else []
        self.max_tokens: int | None = None
        self._open = True
        self._call = ModelCall(
            id=f"c{index}",
            index=index,
            parent_id=None,
            context_ids=(),
            prompt_len=0,
            sampled_ids=(),
            logprobs=(),
            tools_key=self._trace.add_tools(tools) if tools else None,
            dialect=exchange.dialect,
            version_first=version,
            requested_sampling={key: value for key, value in request.items() if key not in _CARRIED and key != "stream"},
            started_s=exchange.started - exchange.session.began,
        )

    def fail(self, error: str, version: int, *, delivered: bool = True) -> None:
        """Record a call without a reply; `delivered` is False when the client did not wait for one."""
        self._add([], version_last=version, error=error, delivered=delivered)

    def succeed(self, reply: dict[str, Any], version: int, *, tokens: bool) -> None:
        """Record a reply; `tokens` says whether the engine is to return ids."""
        choice, sampled = reply["choices"][0], read_tokens(reply)
        self._exchange.session.count_reply(sampled.usage.completion_tokens or len(sampled.sampled_ids))
        self._add(
            sampled.prompt_ids,
            sampled_ids=sampled.sampled_ids,
            logprobs=sampled.logprobs,
            usage=sampled.usage,
            finish_reason=choice.get("finish_reason"),
            problem=sampled.problem if tokens else None,
            reply={key: value for key, value in choice["message"].items() if value is not None},
            **{"version_last": version, **sampled.versions},
        )

    def _add(self, prompt_ids: list[int], **values: Any) -> None:
        if self._open:
            self._open = False
            ended_s = time.monotonic() - self._exchange.session.began
            self._trace.add(attrs.evolve(self._call, ended_s=ended_s, max_tokens=self.max_tokens, **values), prompt_ids, self._messages)


def _refuse_tools(request: Mapping[str, Any], allowed: Collection[str] | None) -> None:
    if allowed is None:
        return
    offered = [str(tool.get("function", {}).get("name")) for tool in request.get("tools") or ()]
    if others := sorted(set(offered) - set(allowed)):
        raise _RefusedError(
            f"[sandbox] tools does not allow {', '.join(others)}; it allows {', '.join(sorted(allowed)) or 'none'}."
            " Switch them off in the agent's own options, or allow them"
        )


def _refuse_constraints(request: Mapping[str, Any]) -> None:
    found = [key for key in _CONSTRAINTS if request.get(key)]
    form = request.get("response_format")
    if form and not (isinstance(form, dict) and form.get("type") == "text"):
        found.append("response_format")
    if request.get("tool_choice") not in (None, "auto", "none"):
        found.append("tool_choice")
    if found:
        raise _RefusedError(
            f"this endpoint trains a model and cannot constrain its replies: leave out {', '.join(found)}"
            ' (tool_choice may be "auto" or "none")'
        )


def _sampling_values(sampling: SamplingConfig, *, every: bool) -> dict[str, Any]:
    # An engine that returns ids may take what is not sent from the model's folder; hosted ones refuse parameters they do not know.
    values, neutral = attrs.asdict(sampling), attrs.asdict(SamplingConfig())
    return {key: value for key, value in values.items() if every or key == "temperature" or value != neutral[key]}


def _is_overflow(error: UpstreamError) -> bool:
    return isinstance(error, UpstreamHTTPError) and error.status_code == 400 and any(mark in str(error.body).lower() for mark in _OVERFLOW)


def _for_agent(reply: dict[str, Any], request: Mapping[str, Any]) -> dict[str, Any]:
    """Take out what only capture needs: openenv and the agent would copy it."""
    choice = reply["choices"][0]
    for key in ("prompt_token_ids", "longrein"):
        reply.pop(key, None)
    for key in ("token_ids", "prompt_token_ids", *(() if request.get("logprobs") else ("logprobs",))):
        choice.pop(key, None)
    return reply


def _stop_reply(model: str) -> dict[str, Any]:
    # Not empty: agents take an empty message for a failed generation and ask again.
    message = {"role": "assistant", "content": BUDGET_STOP_MESSAGE}
    return {
        "id": f"stop-{uuid.uuid4().hex[:12]}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    }
