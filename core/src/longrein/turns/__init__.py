"""Turn labels and training rows."""

from longrein.turns.label import label_calls
from longrein.turns.rows import RowSet, build_rows

__all__ = ["RowSet", "build_rows", "label_calls"]
