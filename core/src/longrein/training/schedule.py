"""How many groups may be under way."""

from __future__ import annotations

from attrs import define


@define
class LookAhead:
    """How far rollouts may run ahead of the trainer.

    The n-th row that is handed over is trained in step n // rows_per_step, at version `first_version` + that step. A
    group may start while that lies at most `max_staleness` ahead of the live version, which keeps
    max_staleness + 1 >= 2 optimizer batches under way: accelerate's dispatcher wants batch k+1 before step k runs.
    """

    rows_per_step: int
    max_staleness: int
    first_version: int
    """Version at the loss of the first step of this process."""
    steps: int
    """Steps that this process will make."""
    version: int = 0
    rows: int = 0
    """Rows sent and not dropped."""
    expected: int = 0
    """Rows that groups under way are expected to give, one for each rollout."""

    def may_start(self) -> bool:
        """True when one more group can be used by the time it is trained."""
        step = (self.rows + self.expected) // self.rows_per_step
        return step < self.steps and self.first_version + step - self.version <= self.max_staleness
