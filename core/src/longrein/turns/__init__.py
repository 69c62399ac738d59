"""Turn labels and training rows."""

from longrein.turns.audit import AgentAudit, Audit, AuditRow, InvalidGuard, audit
from longrein.turns.history import Transition, history_findings, transitions
from longrein.turns.label import label_calls
from longrein.turns.rows import RowSet, build_rows, within_budget

__all__ = [
    "AgentAudit",
    "Audit",
    "AuditRow",
    "InvalidGuard",
    "RowSet",
    "Transition",
    "audit",
    "build_rows",
    "history_findings",
    "label_calls",
    "transitions",
    "within_budget",
]
