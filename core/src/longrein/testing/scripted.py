"""A real OpenAI-compatible endpoint whose replies come from a function: no model, deterministic tokens.

Tokens are the bytes of the text, with special tokens for roles, ends and tool calls. A history that an agent echoes back is
therefore an exact token prefix of its next prompt, also when the agent serialised the arguments of a tool call anew.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from longrein.capture.endpoint import PolicyEndpoint
from longrein.capture.listen import loopback_listener, serving, unix_listener
from longrein.testing.tokens import prompt_tokens, reply_tokens

MODEL = "scripted"
Fault = Literal["fewer_ids", "no_ids", "null_logprob", "nan_logprob", "positive_logprob", "unequal_logprobs", "cut", "no_finish"]


@frozen
class Reply:
    """What the scripted policy answers to one request."""

    text: str = ""
    tool_calls: Sequence[tuple[str, Mapping[str, Any]]] = ()
    """(function name, arguments) of each call."""
    reasoning: str = ""
    finish_reason: str | None = None
    """None takes "tool_calls" or "stop", as fits; "length" leaves the end token out."""
    status: int = 200
    """Anything else answers with `text` as the error's message."""
    hold: threading.Event | None = None
    """The reply waits until it is set."""
    fault: Fault | None = None
    """One way in which the reply is not what a sound engine sends."""
    top_logprobs: Mapping[str, float] = field(factory=dict)
    """Log-probabilities of the likeliest tokens, reported at every position."""
    extra: Mapping[str, Any] = field(factory=dict)
    """Further top-level keys of the reply."""


Script = Callable[[dict[str, Any]], Reply]


def logprob(token: int, position: int) -> float:
    """Return the log-probability that the server reports for a token at a position of its reply."""
    return -((token * 31 + position) % 97 + 1) / 100


class ScriptedServer:
    """Serves `script` from a thread of its own; a context manager.

    Args:
        script: called with each request body, in the server's thread.
        socket: a unix socket to serve on; None takes a free loopback port.
        max_model_len: as /v1/models reports it; longer prompts get the error that vLLM gives.
    """

    def __init__(self, script: Script, *, socket: Path | None = None, max_model_len: int = 200_000) -> None:
        self.script, self.max_model_len = script, max_model_len
        self.requests: list[dict[str, Any]] = []
        """Every body received at /v1/chat/completions."""
        self.dropped = threading.Event()
        """Set once a client went away while its reply was on hold."""
        self._listener = unix_listener(socket) if socket else loopback_listener()
        url = "http://policy/v1" if socket else f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self.endpoint = PolicyEndpoint(url, MODEL, uds=socket, max_model_len=max_model_len)
        self._socket, self._started, self._stop = socket, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="scripted", daemon=True)

    def __enter__(self) -> ScriptedServer:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._socket:
            self._socket.unlink(missing_ok=True)

    async def _serve(self) -> None:
        app = Starlette(routes=[Route("/v1/models", self._models), Route("/v1/chat/completions", self._chat, methods=["POST"])])
        async with serving(app, [self._listener]):
            self._started.set()
            await asyncio.to_thread(self._stop.wait)

    async def _models(self, _request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": self.max_model_len}]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        prompt = prompt_tokens(body["messages"], body.get("tools"))
        if len(prompt) >= self.max_model_len:
            return _error(
                400,
                f"This model's maximum context length is {self.max_model_len} tokens. However, your request has"
                f" {len(prompt)} input tokens.",
            )
        reply = self.script(body)
        if reply.hold is not None and not await self._held(request, reply.hold):
            return _error(499, "the client has gone")
        if reply.fault == "cut":
            return _Cut()
        if reply.status != 200:
            return _error(reply.status, reply.text)
        # json.dumps and not JSONResponse: a faulty reply may hold NaN.
        answer = {**_render(body, prompt, reply), **reply.extra}
        if body.get("stream"):
            return Response(_events(answer), media_type="text/event-stream")
        return Response(json.dumps(answer), media_type="application/json")

    async def _held(self, request: Request, event: threading.Event) -> bool:
        while not event.is_set():
            if await request.is_disconnected():
                self.dropped.set()
                return False
            if self._stop.is_set():
                return False
            await asyncio.sleep(0.01)
        return True


class _Cut(Response):
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b'{"id": "cut', "more_body": True})
        raise ConnectionError("scripted cut")


def _error(status: int, message: str) -> JSONResponse:
    kind = "BadRequestError" if status == 400 else "ServerError"
    return JSONResponse({"error": {"message": message, "type": kind, "code": status}}, status_code=status)


def _render(body: Mapping[str, Any], prompt: list[int], reply: Reply) -> dict[str, Any]:
    calls = [
        {"id": f"call_{len(body['messages'])}_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for i, (name, arguments) in enumerate(reply.tool_calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": reply.text or None, "tool_calls": calls or None}
    if reply.reasoning:
        message["reasoning"] = reply.reasoning
    finish = reply.finish_reason or ("tool_calls" if calls else "stop")
    ids = reply_tokens(message, end=finish != "length")
    limit = body.get("max_tokens")
    if limit is not None and len(ids) > limit:
        ids, finish = ids[:limit], "length"
        text = itertools.takewhile(lambda token: token < 256, ids)
        message.update(content=bytes(text).decode(errors="ignore"), tool_calls=None)
    values: list[float | None] = [logprob(token, i) for i, token in enumerate(ids)]
    n_sampled = len(ids)
    ids, values = _damage(ids, values, reply.fault)
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": None if reply.fault == "no_finish" else finish}
    if body.get("logprobs"):
        top = [{"token": token, "logprob": value} for token, value in reply.top_logprobs.items()]
        choice["logprobs"] = {"content": [{"token": "", "logprob": value, "top_logprobs": top} for value in values]}
    result = {
        "id": f"chatcmpl-{time.monotonic_ns()}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": MODEL,
        "choices": [choice],
        "usage": {"prompt_tokens": len(prompt), "completion_tokens": n_sampled, "total_tokens": len(prompt) + n_sampled},
    }
    if body.get("return_token_ids") and reply.fault != "no_ids":
        result["prompt_token_ids"], choice["token_ids"] = prompt, ids
    return result


def _events(answer: Mapping[str, Any]) -> str:
    """Return a reply as the events of a stream, for agents that ask without capture between; ids and log-probabilities are left out."""
    choice = answer["choices"][0]
    calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls") or ())]
    delta = {**choice["message"], "tool_calls": calls} if calls else {"role": "assistant", "content": choice["message"]["content"] or ""}
    parts: list[tuple[list[dict[str, Any]], Any]] = [
        ([{"index": 0, "delta": delta, "finish_reason": None}], None),
        ([{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}], None),
        ([], answer["usage"]),
    ]
    head = {"id": answer["id"], "object": "chat.completion.chunk", "created": answer["created"], "model": answer["model"]}
    chunks = [json.dumps({**head, "choices": choices, "usage": usage}) for choices, usage in parts]
    return "".join(f"data: {chunk}\n\n" for chunk in (*chunks, "[DONE]"))


def _damage(ids: list[int], values: list[float | None], fault: Fault | None) -> tuple[list[int], list[float | None]]:
    if fault == "fewer_ids":
        return ids[: len(ids) // 2], values[: len(ids) // 2]
    if fault == "unequal_logprobs":
        return ids, values[:-1]
    wrong = {"null_logprob": None, "nan_logprob": float("nan"), "positive_logprob": 0.5}
    return (ids, [wrong[fault], *values[1:]]) if fault in wrong else (ids, values)
