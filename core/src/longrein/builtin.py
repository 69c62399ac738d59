"""What longrein itself registers, through the same hooks as every plugin."""

from __future__ import annotations

from collections.abc import Sequence

from longrein.agent import AgentAdapter
from longrein.baseline import Nop, Oracle
from longrein.function.adapter import FunctionAgent
from longrein.hookspecs import hookimpl
from longrein.practice.tasks import PracticeTasks
from longrein.react.adapter import React
from longrein.reward import RewardFunction
from longrein.reward.builtin import Binary, Fraction, Shaped
from longrein.sandbox import BubblewrapSandbox, DockerSandbox, Sandbox, SupervisorSandbox
from longrein.tasks.folder import FolderTasks, FolderVerifier
from longrein.tasks.harbor import HarborTasks, HarborVerifier
from longrein.verifier import TaskSet, Verifier


@hookimpl
def longrein_agents() -> Sequence[type[AgentAdapter]]:
    """Register the floor and the ceiling of every comparison, an agent without a loop of its own, and Python functions."""
    return [Nop, Oracle, React, FunctionAgent]


@hookimpl
def longrein_verifiers() -> Sequence[type[Verifier]]:
    """Register the verifiers of task folders: by their own command, and by Harbor's tests."""
    return [FolderVerifier, HarborVerifier]


@hookimpl
def longrein_tasksets() -> Sequence[type[TaskSet]]:
    """Register task folders, also those of Harbor's format, and the tasks of the practice policy."""
    return [FolderTasks, HarborTasks, PracticeTasks]


@hookimpl
def longrein_rewards() -> Sequence[type[RewardFunction]]:
    """Register the default rewards."""
    return [Binary, Fraction, Shaped]


@hookimpl
def longrein_sandboxes() -> Sequence[type[Sandbox]]:
    """Register the Linux default, the one for container engines, and the one that works without either."""
    return [BubblewrapSandbox, DockerSandbox, SupervisorSandbox]
