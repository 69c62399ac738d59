"""A bounded number of coroutines at once, results in the order of their inputs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
AHEAD = 4
"""Results that may wait for a slow one, for each coroutine at once."""


async def ordered(function: Callable[[S], Awaitable[T]], items: Iterable[S], *, at_once: int) -> AsyncGenerator[T, None]:
    """Yield `function(item)` for each item, in order; `items` is read in a thread, only as far as results are taken.

    Args:
        function: what it raises comes out here, and ends the others.
        items: may be longer than memory.
        at_once: coroutines that run at the same time.
    """
    slots = asyncio.Semaphore(at_once)
    source, end = iter(items), object()
    waiting: deque[asyncio.Task[T]] = deque()

    async def run(item: S) -> T:
        async with slots:
            return await function(item)

    try:
        while True:
            item = await asyncio.to_thread(next, source, end)
            if item is not end:
                waiting.append(asyncio.create_task(run(item)))  # type: ignore[arg-type]
            while waiting and (item is end or len(waiting) >= AHEAD * at_once or waiting[0].done()):
                yield await waiting.popleft()
            if item is end:
                return
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
