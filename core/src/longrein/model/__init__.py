"""The data model: frozen attrs classes, plain data throughout."""

from longrein.model.call import ModelCall, Usage
from longrein.model.rollout import (
    GRADED,
    OUTCOMES,
    Action,
    ActionKind,
    Finding,
    Group,
    Outcome,
    OutcomeKind,
    Reward,
    Rollout,
    SessionResult,
)
from longrein.model.row import Row
from longrein.model.task import Example, PublicTask, Task, TaskRef
from longrein.model.turn import LABELS, Label, Trajectory, Turn, TurnLabel
from longrein.model.verdict import CaseResult, Status, Verdict

__all__ = [
    "GRADED",
    "LABELS",
    "OUTCOMES",
    "Action",
    "ActionKind",
    "CaseResult",
    "Example",
    "Finding",
    "Group",
    "Label",
    "ModelCall",
    "Outcome",
    "OutcomeKind",
    "PublicTask",
    "Reward",
    "Rollout",
    "Row",
    "SessionResult",
    "Status",
    "Task",
    "TaskRef",
    "Trajectory",
    "Turn",
    "TurnLabel",
    "Usage",
    "Verdict",
]
