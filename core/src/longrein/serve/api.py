"""The OpenAI-compatible routes."""

from __future__ import annotations

import asyncio
import json
import traceback
from collections.abc import AsyncIterator, Callable
from typing import Any

from attrs import evolve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from longrein.serve.reply import Reply, usage
from longrein.serve.request import BadRequest, ChatRequest
from longrein.serve.scheduler import Job, Scheduler, Step
from longrein.serve.template import ChatTemplate


class Api:
    """Answers chat completions with one model.

    Args:
        scheduler: runs the model.
        template: its tokenizer's chat template.
        model: the served name.
        max_model_len: longest prompt and reply together, in tokens.
    """

    def __init__(self, scheduler: Scheduler, template: ChatTemplate, *, model: str, max_model_len: int) -> None:
        self.scheduler, self.template, self.model, self.max_model_len = scheduler, template, model, max_model_len

    def app(self) -> Starlette:
        """Return the ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self.health),
                Route("/v1/models", self.models),
                Route("/v1/chat/completions", self.chat, methods=["POST"]),
            ],
            exception_handlers={Exception: _fault},
        )

    async def health(self, _: Request) -> Response:
        """Say that the server is up, and with which version."""
        return JSONResponse({"status": "ok", "version": self.scheduler.version})

    async def models(self, _: Request) -> Response:
        """List the one model."""
        model = {"id": self.model, "object": "model", "owned_by": "longrein", "max_model_len": self.max_model_len}
        return JSONResponse({"object": "list", "data": [model]})

    async def chat(self, http: Request) -> Response:
        """Answer one chat completion."""
        try:
            request = ChatRequest.parse(await _json(http), model=self.model, max_model_len=self.max_model_len)
            text = self.template.render(request.messages, request.tools)
            prompt = self.template.encode(text)
            request = self._bounded(request, len(prompt))
        except BadRequest as error:
            return _error(str(error), error.status, error.code)
        reply = Reply(self.template, request)
        steps: asyncio.Queue[Step | None] = asyncio.Queue()
        job = self._job(reply, prompt, steps if request.stream else None)
        finished = asyncio.wrap_future(job.done)
        finished.add_done_callback(lambda _: steps.put_nowait(None))
        finished.add_done_callback(lambda _: self._remember(text, job))
        self.scheduler.submit(job)
        if request.stream:
            return _EventStream(self._events(reply, job, steps), lambda: self.scheduler.cancel(job))
        return await self._whole(http, reply, job, finished)

    def _bounded(self, request: ChatRequest, n_prompt: int) -> ChatRequest:
        room = self.max_model_len - n_prompt
        if room < 1:
            raise BadRequest(
                f"This model's maximum context length is {self.max_model_len} tokens; the messages have {n_prompt}.",
                code="context_length_exceeded",
            )
        return evolve(request, sampling=evolve(request.sampling, max_tokens=min(request.sampling.max_tokens, room)))

    def _job(self, reply: Reply, prompt: list[int], steps: asyncio.Queue[Step | None] | None) -> Job:
        loop = asyncio.get_running_loop()

        def on_step(step: Step) -> bool:
            stopped = reply.add(step)
            if steps is not None:
                loop.call_soon_threadsafe(steps.put_nowait, step)
            return stopped

        return Job(prompt, reply.request.sampling, on_step)

    def _remember(self, text: str, job: Job) -> None:
        if job.done.exception() is None and job.steps[-1].token in self.scheduler.eos_ids:
            self.template.remember(text, job.prompt, [step.token for step in job.steps])

    async def _whole(self, http: Request, reply: Reply, job: Job, finished: asyncio.Future[Any]) -> Response:
        gone = asyncio.create_task(_disconnected(http))
        await asyncio.wait([gone, finished], return_when=asyncio.FIRST_COMPLETED)
        if not finished.done():
            self.scheduler.cancel(job)
            return Response(status_code=499)
        gone.cancel()
        if (error := finished.exception()) is not None:
            return _error(f"{type(error).__name__}: {error}", 500, "internal_error")
        return JSONResponse(reply.body(job, self.model))

    async def _events(self, reply: Reply, job: Job, steps: asyncio.Queue[Step | None]) -> AsyncIterator[str]:
        sent = ""
        first: dict[str, Any] = {"role": "assistant", "content": ""}
        while (step := await steps.get()) is not None:
            content = reply.streamable()
            delta = {**first, "content": content[len(sent) :]}
            prompt = {"prompt_token_ids": list(job.prompt)} if first and reply.request.return_token_ids else {}
            first, sent = {}, content
            yield self._chunk(reply, job, delta, None, reply.details([step]), **prompt)
        if (error := job.done.exception()) is not None:
            yield _event({"error": {"message": f"{type(error).__name__}: {error}", "code": "internal_error"}})
            return
        message = reply.message(job)
        rest = {"content": (message["content"] or "").removeprefix(sent)}
        if calls := message.get("tool_calls"):
            rest["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls)]
        yield self._chunk(reply, job, rest, "tool_calls" if calls else job.done.result(), {})
        if reply.request.include_usage:
            yield _event({**reply.head("chat.completion.chunk", job, self.model), "choices": [], "usage": usage(job)})
        yield "data: [DONE]\n\n"

    def _chunk(self, reply: Reply, job: Job, delta: dict[str, Any], reason: str | None, details: dict[str, Any], **extra: Any) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": reason, **details}
        return _event({**reply.head("chat.completion.chunk", job, self.model), "choices": [choice], **extra})


class _EventStream(StreamingResponse):
    """Server-sent events; a client that goes away ends the job."""

    def __init__(self, events: AsyncIterator[str], cancel: Callable[[], None]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._cancel = cancel

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._cancel()  # changes nothing when the job has ended


async def _fault(_: Request, error: Exception) -> Response:
    traceback.print_exception(error)
    return _error(f"{type(error).__name__}: {error}", 500, "internal_error")


async def _disconnected(http: Request) -> None:
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def _json(http: Request) -> Any:
    try:
        return json.loads(await http.body())
    except ValueError as error:
        raise BadRequest(f"the body is not JSON: {error}") from error


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data, ensure_ascii=False)}\n\n"


def _error(message: str, status: int, code: str) -> Response:
    return JSONResponse(
        {"error": {"message": message, "type": "invalid_request_error" if status < 500 else "server_error", "code": code}},
        status_code=status,
    )
