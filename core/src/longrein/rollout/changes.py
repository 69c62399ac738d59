"""Waking those who wait for a change of something that one event loop alone changes."""

from __future__ import annotations

import asyncio


class Changes:
    """What `asyncio.Condition` is, without its lock: a change can be told from plain code too, and nobody runs in between."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def notify(self) -> None:
        """Wake all who wait; each looks for itself whether its turn has come."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._next.wait()
