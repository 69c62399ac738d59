"""`longrein export`: the rollouts of a run in another format."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from longrein.cli.flags import Json


class Target(StrEnum):
    """What `export` writes."""

    openenv = "openenv"
    atif = "atif"
    sft = "sft"


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a file that regrade wrote; it is not changed.")],
    to: Annotated[Target, typer.Option(help="openenv: training traces; atif: for viewers; sft: chat messages of passed rollouts.")],
    out: Annotated[Path | None, typer.Option(help="Where to; default RUN/openenv.jsonl, RUN/atif or RUN/sft.jsonl.")] = None,
    as_json: Json = False,
) -> None:
    """Export the rollouts of a run; exit 1 when lines of its record are damaged and could not be."""
    from longrein.cli.output import say, show_json, show_table
    from longrein.exports import export as write_export

    report = write_export(folder, to.value, out=out)
    left_out = [("rollout", reason, n) for reason, n in report.left_out.most_common()]
    left_out += [("turn", reason, n) for reason, n in report.turns_left_out.most_common()]
    if as_json:
        show_json(report)
    elif left_out:
        show_table(("left out", "reason", "number"), left_out)
    for note in report.notes:
        say(note, style="yellow")
    for line in report.damaged:
        say(line, style="red")
    n_left_out = report.left_out.total() + len(report.damaged)
    say(f"wrote {report.path}: {report.records} records of {report.rollouts} rollouts; {n_left_out} rollouts left out")
    if report.damaged:
        sys.exit(1)
