"""The verifier "openenv": an episode is graded by its environment, while that lives."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from longrein.model import Verdict
from longrein.verifier import Verifier


class EpisodeVerifier(Verifier):
    """Stands in where a finished rollout is to be graded again: its environment is gone."""

    name: ClassVar[str] = "openenv"

    def grade(self, hidden: Any, workspace: Path) -> Verdict:
        """Return that nothing can be graded."""
        return Verdict.unscorable("an episode is graded by its environment, which ended with the session; run it again")
