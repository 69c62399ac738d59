"""What the engine is asked for: one rollout, and the session inside it as plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from attrs import frozen

from longrein.model import PublicTask, Task


@frozen
class RolloutSpec:
    """One rollout to make."""

    id: str
    group_id: str
    task: Task
    agent: str
    sample: int
    seed: int
    phase: str = "run"
    policy: str = ""

    @classmethod
    def of(
        cls, task: Task, agent: str, sample: int, *, run_seed: int, phase: str = "run", group_id: str = "", policy: str = ""
    ) -> RolloutSpec:
        """Name and seed a rollout by what it is, so that the same cell has the same id and seed in every run.

        The seed does not depend on the policy: compared policies meet the same draws.
        """
        group = group_id or ".".join(filter(None, (phase, policy, agent, task.id)))
        text = f"{run_seed}|{task.id}|{agent}|{sample}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
        return cls(f"{group}.{sample}", group, task, agent, sample, seed, phase, policy)


@frozen
class SessionSpec:
    """One session to run; plain data, without anything hidden."""

    id: str
    agent: str
    task: PublicTask
    seed: int
    solution: Mapping[str, str] | None = None
    """Only for agents that declare `needs_solution`."""
    max_staleness: int | None = None
    """Versions that the policy may move on by after the session's first reply before it is ended; None lets it finish."""
