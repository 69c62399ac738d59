"""The agents every comparison starts from: `nop` does nothing, `oracle` hands in the known solution."""

from __future__ import annotations

from attrs import evolve

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session

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
        """Write the solution files, or none where the task has no known solution."""
        return evolve(super().launch(session), files=dict(session.solution or {}))
