"""OpenEnv servers and TRL environment classes as tasks, for longrein."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longrein import hookimpl

if TYPE_CHECKING:
    from longrein.verifier import TaskSet, Verifier


@hookimpl
def longrein_tasksets() -> Sequence[type[TaskSet]]:
    """Return the task set "openenv"."""
    from longrein_openenv.taskset import OpenEnvTasks

    return [OpenEnvTasks]


@hookimpl
def longrein_verifiers() -> Sequence[type[Verifier]]:
    """Return the verifier "openenv", which says why an episode is not graded again."""
    from longrein_openenv.verifier import EpisodeVerifier

    return [EpisodeVerifier]
