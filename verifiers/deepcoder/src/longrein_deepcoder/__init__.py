"""DeepCoder task set and stdin/stdout grader for longrein."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longrein.hookspecs import hookimpl

if TYPE_CHECKING:
    from longrein.verifier import TaskSet, Verifier


@hookimpl
def longrein_tasksets() -> Sequence[type[TaskSet]]:
    """Return the task set "deepcoder"."""
    from longrein_deepcoder.taskset import DeepCoderTasks

    return [DeepCoderTasks]


@hookimpl
def longrein_verifiers() -> Sequence[type[Verifier]]:
    """Return the verifier "deepcoder"."""
    from longrein_deepcoder.verifier import DeepCoderVerifier

    return [DeepCoderVerifier]
