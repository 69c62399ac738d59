"""Asks the judge: from the cache, else within the caps, again after answers that cannot be used."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from longrein_ruler import answer
from longrein_ruler.answer import Scored
from longrein_ruler.client import Completion, JudgeClient
from longrein_ruler.errors import JudgeError
from longrein_ruler.options import RulerOptions
from longrein_ruler.store import Store
from longrein_ruler.text import one_line, tokens_of

FIRST_WAIT_S = 1.0
"""Before the second request; doubled before each further one."""

sleep = asyncio.sleep

Message = Mapping[str, Any]


@frozen
class Judgement:
    """The scores of one prompt, by the ids that the judge was shown."""

    scores: Mapping[str, Scored]
    key: str
    """Of the answer in the cache."""
    calls: int = 0
    """Requests that it took now; 0 when the cache had it."""
    cost: float = 0.0


class Judge:
    """One judge with its cache and caps.

    Args:
        options: of the reward.
        key: the endpoint's key.
    """

    def __init__(self, options: RulerOptions, key: str | None) -> None:
        self._options, self._client, self._store = options, JudgeClient(options, key), Store(options)

    async def score(self, messages: Sequence[Message], ids: Sequence[str]) -> Judgement:
        """Return a score for each id that `messages` show.

        Raises:
            JudgeError: there is none after the last allowed request, or none was allowed.
        """
        asked = {"model": self._options.model, "messages": list(messages), "request": dict(self._options.request)}
        key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        kept = self._kept(key, ids)
        if kept is not None:
            return Judgement(kept, key)
        cost, asking = 0.0, list(messages)
        for attempt in range(1 + self._options.retries):
            reply = ""
            try:
                completion, paid = await self._request(asking, ids)
                cost, reply = cost + paid, completion.text
                scores = _read(completion, ids)
            except JudgeError as error:
                if not error.again or attempt == self._options.retries:
                    raise
                if error.kind == "bad_answer":
                    asking = [*messages, *_correction(reply, error)]
                else:
                    await self._wait(error, attempt)
            else:
                self._store.keep(key, {"scores": {name: asdict(scored) for name, scored in scores.items()}, "cost": cost})
                return Judgement(scores, key, attempt + 1, cost)
        raise AssertionError("the last attempt returns or raises")

    def _kept(self, key: str, ids: Sequence[str]) -> Mapping[str, Scored] | None:
        values = self._store.answer(key)
        try:
            return None if values is None else answer.read(json.dumps(values.get("scores")), ids)
        except JudgeError:  # damaged: it is asked for again
            return None

    async def _request(self, messages: Sequence[Message], ids: Sequence[str]) -> tuple[Completion, float]:
        n_tokens = sum(tokens_of(message["content"]) for message in messages)
        with self._store.request(self._store.price(n_tokens, 0)) as costs:
            completion = await self._client.complete(messages, answer.schema(ids))
            return completion, costs(completion.tokens_in, completion.tokens_out)

    async def _wait(self, error: JudgeError, attempt: int) -> None:
        wait_s = FIRST_WAIT_S * 2**attempt if error.wait_s is None else error.wait_s
        if error.wait_s is not None and wait_s > self._options.max_wait_s:
            raise JudgeError(error.kind, f"{error} (it asks to wait {wait_s:g} s; max_wait_s is {self._options.max_wait_s:g})") from None
        await sleep(min(wait_s, self._options.max_wait_s))


def _read(completion: Completion, ids: Sequence[str]) -> dict[str, Scored]:
    if completion.cut:  # what is left of it may be JSON all the same
        raise JudgeError("bad_answer", "the judge's answer was cut at the endpoint's limit of tokens; `request` can raise it", again=True)
    return answer.read(completion.text, ids)


def _correction(reply: str, error: JudgeError) -> list[Message]:
    """Return how a conversation goes on after an answer that cannot be used; asked the same again, it may come again."""
    said = [{"role": "assistant", "content": one_line(reply, 2000)}] if reply.strip() else []
    text = f"That cannot be used: {one_line(str(error))}. Answer again with one JSON object, as described above, and nothing else."
    return [*said, {"role": "user", "content": text}] if said else []
