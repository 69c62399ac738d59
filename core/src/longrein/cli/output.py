"""Printing: progress lines on stderr, results on stdout; untrusted text is never read as markup."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from longrein.model import Rollout
from longrein.rollout.serialize import plain

STATUS_STYLE = {"passed": "green", "failed": "red", "unscorable": "yellow"}


def say(line: str, *, style: str = "") -> None:
    """Print one progress line on stderr."""
    Console(stderr=True, highlight=False, soft_wrap=True).print(Text(line, style=style))


def show_json(value: Any) -> None:
    """Print plain data as JSON on stdout."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def show_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], *, title: str | None = None) -> None:
    """Print a table on stdout."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:  # a pipe has no width: keep each row on one line
        console = Console(highlight=False, width=400)
    console.print(table)


def rollout_line(rollout: Rollout, done: int, total: int) -> str:
    """Return the progress line of a finished rollout."""
    reward = "-" if rollout.reward.value is None else f"{rollout.reward.value:+.2f}"
    return (
        f"[{done}/{total}] {rollout.agent:<10} {rollout.task_id}  {rollout.outcome.kind}  {rollout.verdict.status}  reward {reward}  "
        f"{len(rollout.trajectory)} calls  {rollout.session.wall_s:.1f} s"
    )


def show_turns(rollout: Rollout) -> None:
    """Print each turn of a rollout with its label and reason."""
    rows = [
        (turn.call.index, turn.label.label, len(turn.call.sampled_ids), turn.decided_by, turn.label.reason) for turn in rollout.trajectory
    ]
    show_table(
        ("call", "label", "tokens", "decided by", "reason"), rows, title=f"{rollout.id}: {rollout.outcome.kind}, {rollout.verdict.status}"
    )


def show_findings(rollouts: Sequence[Rollout]) -> None:
    """Print each different finding once, with the number of rollouts that have it."""
    counts = Counter((finding.source, finding.message) for rollout in rollouts for finding in set(rollout.session.findings))
    for (source, message), count in counts.most_common():
        say(f"finding in {count} of {len(rollouts)} rollouts: {source}: {message}", style="yellow")


def percent(value: float | None) -> str:
    """Return a share as a percentage, or a dash."""
    return "-" if value is None else f"{100 * value:.1f} %"


def interval(values: Sequence[float] | None) -> str:
    """Return an interval of shares as percentages, or a dash."""
    return "-" if values is None else f"[{100 * values[0]:.1f}, {100 * values[1]:.1f}]"


def show_summary(summary: Mapping[str, Any]) -> None:
    """Print the pass rates of a summary, a row for each agent and side, for each task set of several, and for all agents together."""
    rows = []
    for agent, sides in _parts(summary):
        outcomes = ", ".join(f"{kind} {count}" for kind, count in sides.get("outcomes", {}).items())
        if not {"run", "before"} & set(sides):  # trained without [eval]
            rows.append((agent, "train", "-", "-", "", "", outcomes))
        for side in ("run", "before", "after"):
            if side in sides:
                cell = sides[side]
                rows.append((agent, side, percent(cell["pass_rate"]), interval(cell["interval"]), cell["n"], cell["unscorable"], outcomes))
                agent, outcomes = "", ""
        if "change" in sides:
            rows.append(("", "change", *_change(sides["change"])))
    show_table(("agent", "side", "pass rate", "95 % interval", "n", "unscorable", "outcomes"), rows)


def _parts(summary: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for agent, figures in summary["agents"].items():
        yield agent, figures
        yield from ((f"{agent} on {name}", part) for name, part in figures.get("tasksets", {}).items())
    if len(summary["agents"]) > 1:
        yield from ((f"all on {name}", part) for name, part in summary.get("tasksets", {}).items())
    if "pooled" in summary:
        yield "pooled", summary["pooled"]


def _change(change: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    return percent(change["difference"]), interval(change["interval"]), f"{change['pairs']} pairs", "", ""
