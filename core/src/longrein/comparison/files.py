"""A comparison in its run folder: comparison.json whole, and two tables for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import cattrs
from attrs import asdict
from cattrs.preconf.json import make_converter

from longrein.comparison.model import AgentFigures, Comparison
from longrein.errors import RecordError
from longrein.rollout.record import write_whole
from longrein.rollout.serialize import plain

SCHEMA_VERSION = 1
NAME = "comparison.json"


def write_comparison(folder: Path, comparison: Comparison) -> Path:
    """Write comparison.json, comparison.csv (a line for each policy and agent) and pairs.csv; return the first."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **plain(comparison)}, indent=2, ensure_ascii=False)
    _csv(folder / "comparison.csv", [_row(figures) for figures in comparison.figures])
    _csv(folder / "pairs.csv", [_bounds(asdict(pair), "interval") for pair in comparison.pairs])
    return write_whole(folder / NAME, text + "\n")


def read_comparison(folder: Path) -> Comparison:
    """Return the comparison of a run folder.

    Raises:
        RecordError: there is none, or it is damaged or of another schema version.
    """
    path = folder / NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        version = values.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise RecordError(f"{path} has schema_version {version!r}, this longrein reads {SCHEMA_VERSION}")
        return make_converter().structure(values, Comparison)
    except OSError as error:
        raise RecordError(f"{folder} holds no comparison: {error.strerror}: {path}") from error
    except (ValueError, AttributeError, cattrs.BaseValidationError) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"{path} cannot be read: {error}") from error


def _row(figures: AgentFigures) -> dict[str, Any]:
    """Return figures as one flat line; what is counted by kind gets a column for each kind."""
    row = _bounds(asdict(figures, recurse=False), "interval")
    for name in ("tasks", "pass_at", "outcomes", "unscorable_outcomes", "actions"):
        row.pop(name)
    row |= {"tasks": len(figures.tasks), **{f"pass@{item.k}": item.value for item in figures.pass_at}}
    row |= {f"outcome_{kind}": count for kind, count in figures.outcomes.items()}
    return row | {f"actions_{kind}": mean for kind, mean in figures.actions.items()}


def _bounds(row: Mapping[str, Any], name: str) -> dict[str, Any]:
    low, high = row[name] or (None, None)
    return {**{key: value for key, value in row.items() if key != name}, f"{name}_low": low, f"{name}_high": high}


def _csv(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    rows = list(rows)
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue())
