"""Tasks: what an agent is asked, and a reference to what it must never see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import Factory, field, frozen


@frozen
class Example:
    """A public example case, shown to the agent and never graded."""

    stdin: str
    stdout: str


@frozen
class PublicTask:
    """Everything of a task that an agent may see."""

    prompt: str
    files: Mapping[str, str] = field(factory=dict)
    """Path below the workspace to text; placed before the agent starts."""
    examples: tuple[Example, ...] = ()
    check: str | None = None
    """A Python script among `files` that exits 0 when the public examples pass; agents' test command."""
    workdir: str | None = None
    """Another path by which the task names the working folder, such as /app; sessions find it there too."""


@frozen
class TaskRef:
    """Names hidden data without holding it: only the verifier's process resolves it."""

    taskset: str
    task_id: str
    options: Mapping[str, Any] = field(factory=dict)
    """The options of the task set, as in the config."""


@frozen
class Task:
    """One problem. Hidden tests and solutions are reached through `ref` only."""

    id: str
    digest: str
    """sha256 (hex) over public and hidden content; two runs compare tasks by it."""
    public: PublicTask
    ref: TaskRef
    verifier: str
    """Name of the verifier that grades it."""
    metadata: Mapping[str, Any] = field(factory=dict)
    taskset: str = Factory(lambda task: task.ref.taskset, takes_self=True)
    """Name of the task set in a run: its table in [tasksets], else that of `ref`."""
