"""What crosses between the trainer and the engine process.

Down: JSON lines on the child's standard input, each with a `kind`: start, go, version, dropped, eval, stop. Its end means that
the trainer is gone. Up: pickled objects of this module on a one-way pipe whose write end only the child holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

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
    """A group leaves for the trainer; those that give no row never do."""

    position: int
    """In the training order."""
    number: int
    """Number of the group, never used twice in a run."""
    rows: tuple[TrainRow, ...]
    drawn: tuple[str, int] = ("", 0)
    """Task id and visit: what a resumed run makes again when the rows were not all trained."""
    open: tuple[tuple[int, str, int], ...] = ()
    """Position, task id and visit of all groups that have not left yet."""
    state: Mapping[str, Any] = field(factory=dict)
    """What the engine process goes on from when it is started again."""


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
