"""What a verifier found: passed, failed or unscorable, with a result for each case."""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, frozen

Status = Literal["passed", "failed", "unscorable"]


@frozen
class CaseResult:
    """One graded case. Excerpts are short and for people; they never reach an agent."""

    status: str
    """passed, wrong_answer, runtime_error, timeout, memory_limit, output_limit, compile_error or no_solution."""
    detail: str = ""
    got: str = ""
    expected: str = ""
    cpu_s: float | None = None
    wall_s: float | None = None


@frozen
class Verdict:
    """A grade. `score` is in [0, 1], and None exactly when `status` is unscorable."""

    status: Status
    score: float | None = field()
    reason: str = ""
    cases: tuple[CaseResult, ...] = ()
    details: dict[str, Any] = field(factory=dict)
    """What the verifier wants in the record: compare mode, interpreter, which cases were graded."""

    @score.validator
    def _bounded(self, _attribute: Any, value: float | None) -> None:
        if (value is None) != (self.status == "unscorable"):
            raise ValueError(f"a {self.status} verdict cannot have score {value!r}; None means unscorable and nothing else")
        if value is not None and not 0.0 <= value <= 1.0:
            raise ValueError(f"score {value!r} is outside [0, 1]")

    @classmethod
    def unscorable(cls, reason: str, **details: Any) -> Verdict:
        """Return the verdict for trouble that is not the policy's doing."""
        return cls("unscorable", None, reason, details=details)
