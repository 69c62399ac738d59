"""What a resumed run goes on from, beside TRL's own checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import asdict, frozen

from longrein.errors import ConfigError, RecordError
from longrein.rollout.summary import Cell
from longrein.training.producer import Place

SCHEMA_VERSION = 1
NAME = "rollout_state.json"
ID_BLOCK = 1_000_000
"""Every start of a run numbers its groups from a block of its own, so no number is used twice."""


@frozen
class TrainState:
    """Where training stands after `step` optimizer steps. The order of groups, their tasks and the seeds of sessions follow from the
    seed and from `place`: no random state is needed on this side (TRL keeps its own)."""

    step: int = 0
    version: int = 0
    """Policy version that is live; it goes on counting."""
    groups_stepped: int = 0
    """Groups all of whose rows were trained, in all starts of the run."""
    place: Place = Place()
    evals: Mapping[str, tuple[Cell, ...]] = {}
    """Evaluations made so far, by phase."""


def write(state: TrainState, checkpoint: Path) -> None:
    """Write the state into a checkpoint, last of all its files: a checkpoint with it is whole."""
    values = {"schema_version": SCHEMA_VERSION, **asdict(state)}
    partial = checkpoint / f".{NAME}.part"
    partial.write_text(json.dumps(values) + "\n", encoding="utf-8")
    partial.replace(checkpoint / NAME)


def read(checkpoint: Path) -> TrainState:
    """Return the state of a checkpoint.

    Raises:
        RecordError: it is damaged or of another schema version.
    """
    path = checkpoint / NAME
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        version = values.pop("schema_version", None)
        if version != SCHEMA_VERSION:
            raise RecordError(f"{path} has schema_version {version!r}, this longrein reads {SCHEMA_VERSION}")
        place = _place(values.pop("place"))
        evals = {phase: tuple(Cell(**cell) for cell in cells) for phase, cells in values.pop("evals").items()}
        return TrainState(**values, place=place, evals=evals)
    except (OSError, json.JSONDecodeError, KeyError, TypeError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from error


def last_checkpoint(run_folder: Path) -> Path | None:
    """Return the newest whole checkpoint of a run, or None when it has none.

    Raises:
        ConfigError: the folder holds no run.
    """
    if not (run_folder / "config.toml").is_file():
        raise ConfigError(f"cannot resume {run_folder}: it holds no run (there is no config.toml)")
    marked = (path.parent for path in (run_folder / "checkpoints").glob(f"checkpoint-*/{NAME}"))
    whole = [path for path in marked if (path / "trainer_state.json").is_file()]
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def next_block(run_folder: Path) -> int:
    """Note one more start of a run and return the first group number it may use."""
    path = run_folder / "starts"
    starts = int(path.read_text()) if path.is_file() else 0
    path.write_text(f"{starts + 1}\n")
    return starts * ID_BLOCK


def _place(values: Mapping[str, Any]) -> Place:
    again = tuple((position, task, visit) for position, task, visit in values.get("again", ()))
    return Place(values["position"], tuple(values["done"]), again, values.get("state", {}))
