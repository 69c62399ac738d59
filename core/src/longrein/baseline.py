"""The agents every comparison starts from: `nop` does nothing, `oracle` hands in the known solution."""

from __future__ import annotations

from attrs import evolve

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.errors import TaskError

OFFLINE = Capabilities(dialect="none", tools=False, calls_model=False)


class Nop(AgentAdapter):
    """Leaves the workspace as it is: what a task gives away."""

    name = "nop"
    capabilities = OFFLINE

    def launch(self, session: Session) -> LaunchPlan:
        """Start an interpreter that ends at once."""
        return LaunchPlan([str(session.python), "-c", "pass"])


class Oracle(Nop):
    """Writes the task's solution: a verifier that fails it is wrong."""

    name = "oracle"
    capabilities = evolve(OFFLINE, needs_solution=True)

    def launch(self, session: Session) -> LaunchPlan:
        """Write the solution files.

        Raises:
            TaskError: the task has no known solution; the session is then unscorable rather than failed.
        """
        if not session.solution:
            raise TaskError("this task has no known solution that the oracle could hand in")
        return evolve(super().launch(session), files=dict(session.solution))
