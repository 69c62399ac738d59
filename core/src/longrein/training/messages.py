"""What crosses between the trainer and the engine process.

Down: JSON lines on the child's standard input, each with a `kind`: start, go, version, dropped, eval, stop. Its end means that
the trainer is gone. Up: pickled objects of this module on a one-way pipe whose write end only the child holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from longrein.model import Row
from longrein.rollout.summary import Cell


@frozen
class Ready:
    """The child has loaded plugins and tasks."""

    n_tasks: int
    n_eval_tasks: int
    agents: tuple[str, ...]
    """Agents that call the model, in the config's order."""


@frozen
class TrainRow:
    """A row with what GRPO makes of it."""

    row: Row
    advantage: float
    prompt: Sequence[Mapping[str, Any]] = ()
    """Messages of the row's last request, for traces; empty unless trackio is asked for."""
    completion: Sequence[Mapping[str, Any]] = ()


@frozen
class GroupDone:
    """A group is complete; `rows` is empty when it was skipped."""

    position: int
    """Place in the curriculum."""
    number: int
    """Number of the group, never used twice in a run."""
    rows: tuple[TrainRow, ...] = ()


@frozen
class Metrics:
    """Figures for the trainer's log: a number, or (numerator, denominator) for a rate."""

    values: Mapping[str, float | tuple[float, float]]


@frozen
class EvalDone:
    """The cells of an evaluation."""

    phase: str
    cells: tuple[Cell, ...]


@frozen
class Note:
    """A line for people."""

    text: str


@frozen
class Heartbeat:
    """The child's loop is alive."""


@frozen
class Ended:
    """The child's last words. `error` names the class of longrein.errors to raise; None for a stop that was asked for."""

    reason: str
    error: str | None = None
