"""One request to an OpenAI-compatible endpoint, and what its failures mean."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from typing import Any

from attrs import frozen

from longrein_ruler.errors import JudgeError
from longrein_ruler.options import RulerOptions
from longrein_ruler.text import one_line, tokens_of

MAX_REPLY = 1 << 20
"""Bytes of a reply that are read."""
NO_SCHEMA = (400, 404, 415, 422, 501)
"""How endpoints that do not know `response_format` answer."""
PASSING = (408, 409, 425, 429)
"""Statuses below 500 after which another request may help."""


@frozen
class Completion:
    """A reply's text and what it cost in tokens."""

    text: str
    tokens_in: int
    tokens_out: int
    cut: bool = False
    """True when the reply ended at the endpoint's limit of tokens."""


class JudgeClient:
    """Sends one request at a time; remembers when the endpoint knows no JSON schemas.

    Args:
        options: where and what to ask.
        key: the endpoint's key; it never appears in an error.
    """

    def __init__(self, options: RulerOptions, key: str | None) -> None:
        self._options, self._key, self._structured = options, key, True

    async def complete(self, messages: Sequence[Mapping[str, Any]], schema: Mapping[str, Any]) -> Completion:
        """Return the reply to `messages`, in the form of `schema` where the endpoint can do that.

        Raises:
            JudgeError: there is none.
        """
        body = {**self._options.request, "model": self._options.model, "messages": list(messages)}
        form = {"type": "json_schema", "json_schema": {"name": "scores", "strict": True, "schema": schema}}
        if self._structured:
            status, headers, data = await self._post({**body, "response_format": form})
            if status not in NO_SCHEMA:
                return self._read(status, headers, data, messages)
        status, headers, data = await self._post(body)
        if status == 200:
            self._structured = False
        return self._read(status, headers, data, messages)

    async def _post(self, body: Mapping[str, Any]) -> tuple[int, Mapping[str, str], bytes]:
        import httpx  # here: every command loads this plugin, few ask a judge

        options = self._options
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            # httpx bounds each read; the outer bound holds for an endpoint that sends a byte now and then.
            async with (
                asyncio.timeout(options.timeout_s),
                httpx.AsyncClient(timeout=options.timeout_s) as client,
                client.stream("POST", f"{options.url.rstrip('/')}/chat/completions", json=body, headers=headers) as response,
            ):
                data = bytearray()
                async for chunk in response.aiter_bytes():
                    data += chunk
                    if len(data) > MAX_REPLY:
                        raise JudgeError("bad_answer", f"the reply is longer than {MAX_REPLY:,} bytes", again=True)
                return response.status_code, response.headers, bytes(data)
        except (TimeoutError, httpx.TimeoutException):
            raise JudgeError("timeout", f"no reply within {options.timeout_s:g} s", again=True) from None
        except httpx.HTTPError as error:
            raise JudgeError("unreachable", self._clean(f"{type(error).__name__}: {error}"), again=True) from None

    def _read(self, status: int, headers: Mapping[str, str], data: bytes, messages: Sequence[Mapping[str, Any]]) -> Completion:
        if status != 200:
            raise self._failure(status, headers, data)
        try:
            reply = json.loads(data)
            choice = reply["choices"][0]
            message, usage = choice["message"], reply.get("usage") or {}
            text = message.get("content")
            counts = [usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            raise JudgeError("bad_answer", self._clean(f"not a chat completion: {data[:200]!r}"), again=True) from None
        if not isinstance(text, str):
            raise JudgeError("bad_answer", self._clean(f"no text in the reply; refusal: {message.get('refusal')}"), again=True)
        guesses = (sum(tokens_of(str(m["content"])) for m in messages), tokens_of(text))
        asked, said = (n if type(n) is int and n >= 0 else guess for n, guess in zip(counts, guesses, strict=True))
        return Completion(text, asked, said, cut=choice.get("finish_reason") == "length")

    def _failure(self, status: int, headers: Mapping[str, str], data: bytes) -> JudgeError:
        said = self._clean(data[:2000].decode("utf-8", "replace"))
        message = f"the endpoint answered {status}: {said}"
        if status == 429:
            return JudgeError("rate_limited", message, again=True, wait_s=_retry_after(headers))
        if status >= 500 or status in PASSING:
            return JudgeError("server_error", message, again=True, wait_s=_retry_after(headers))
        return JudgeError("refused", message)

    def _clean(self, text: str) -> str:
        return one_line(text.replace(self._key, "[key]") if self._key else text)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a Retry-After header asks for, as a number or as a date."""
    given = headers.get("retry-after", "")
    try:
        seconds = float(given)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(given).timestamp() - time.time()
        except ValueError:
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
