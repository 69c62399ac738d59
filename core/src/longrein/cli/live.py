"""What is going on while rollouts are made: a live view on a terminal, a line for each rollout elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from longrein.cli.output import STATUS_STYLE, rollout_line, say
from longrein.model import Rollout
from longrein.rollout.spec import SessionSpec


class RolloutView:
    """Takes the progress of `run` and `compare`; a context manager. Everything goes to stderr."""

    def __init__(self) -> None:
        self._running: dict[str, float] = {}
        self._counts: dict[str, Counter[str]] = {}
        self._done, self._total, self._began = 0, 0, time.monotonic()
        console = Console(stderr=True, highlight=False)
        self._live = Live(get_renderable=self._render, console=console, refresh_per_second=2, transient=True)

    def __enter__(self) -> Self:
        if self._live.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def say(self, line: str) -> None:
        """Show one line, above the live view where there is one."""
        if self._live.is_started:
            self._live.console.print(Text(line), soft_wrap=True)
        else:
            say(line)

    def started(self, spec: SessionSpec) -> None:
        """Note that a session begins."""
        self._running[spec.id] = time.monotonic()
        if self._live.is_started:  # a short session would end before it was ever shown
            self._live.refresh()

    def finished(self, rollout: Rollout, total: int) -> None:
        """Note a finished rollout; one that could not be scored gets its line in any case."""
        self._running.pop(rollout.id, None)
        status = rollout.verdict.status
        self._counts.setdefault(rollout.agent, Counter())[status] += 1
        self._done, self._total = self._done + 1, total
        if not self._live.is_started or status == "unscorable":
            self.say(rollout_line(rollout, self._done, total))

    def _render(self) -> Group:
        now = time.monotonic()
        counts = Table("agent", *STATUS_STYLE, box=None, pad_edge=False)
        for agent, by_status in list(self._counts.items()):
            counts.add_row(Text(agent), *(Text(str(by_status[status]), style=style) for status, style in STATUS_STYLE.items()))
        running = Table("running", "s", box=None, pad_edge=False)
        for name, since in list(self._running.items()):
            running.add_row(Text(name), f"{now - since:.0f}")
        return Group(Text(self._headline(now), style="bold"), counts, running)

    def _headline(self, now: float) -> str:
        spent_s = now - self._began
        line = f"{self._done} of {self._total or '?'} rollouts, {_clock(spent_s)} so far"
        return f"{line}, about {_clock(spent_s / self._done * (self._total - self._done))} left" if self._done else line


def _clock(seconds: float) -> str:
    hours, rest = divmod(int(seconds), 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"
