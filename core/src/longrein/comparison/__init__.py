"""Compare agents, and policies, on the same tasks."""

from longrein.comparison.figures import compare_rollouts, pass_at_k
from longrein.comparison.files import read_comparison, write_comparison
from longrein.comparison.model import AgentFigures, ComparedPolicy, Comparison, PairedDifference, PassAtK, TaskCount

__all__ = [
    "AgentFigures",
    "ComparedPolicy",
    "Comparison",
    "PairedDifference",
    "PassAtK",
    "TaskCount",
    "compare_rollouts",
    "pass_at_k",
    "read_comparison",
    "write_comparison",
]
