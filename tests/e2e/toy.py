"""A plugin file for end-to-end tests: a task set of doubling, its verifier, and an agent that is any Python program."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

import longrein
from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Example, PublicTask, Task, TaskRef, Verdict
from longrein.tasks.examples import with_examples
from longrein.verifier import TaskSet, Verifier

SOLUTION = "print(2 * int(input()))\n"
CANARY = "hidden-canary-8"


class Doubling(TaskSet):
    """Two tasks; hidden data holds a canary."""

    name = "doubling"

    def tasks(self) -> Iterator[Task]:
        """Yield both tasks."""
        for i in range(2):
            public = PublicTask(
                f"Read an integer n and print 2*n (variant {i}). Write the program to solution.py.", examples=(Example("3\n", "6\n"),)
            )
            yield Task(f"double-{i}", f"digest-{i}", with_examples(public), TaskRef("doubling", f"double-{i}"), "doubling")

    def hidden(self, task_id: str) -> Any:
        """Return the hidden case."""
        return {"canary": CANARY, "input": "4", "output": "8"}

    def solution(self, task_id: str) -> Mapping[str, str]:
        """Return the right program."""
        return {"solution.py": SOLUTION}


class RunOnce(Verifier):
    """Runs solution.py once; plain, since these tests are about the engine."""

    name = "doubling"

    def grade(self, hidden: Any, workspace: Path) -> Verdict:
        """Compare one output."""
        done = subprocess.run(
            [sys.executable, "solution.py"], input=hidden["input"], capture_output=True, text=True, cwd=workspace, timeout=20, check=False
        )
        passed = done.stdout.strip() == hidden["output"]
        return Verdict("passed" if passed else "failed", float(passed))


class Program(AgentAdapter):
    """Runs the Python program of its options in the sandbox."""

    name = "program"
    capabilities = Capabilities(tools=False)

    @frozen
    class Options:
        """`code` is the program; it has URL, KEY and MODEL in its environment."""

        code: str = ""

    def launch(self, session: Session) -> LaunchPlan:
        """Start the interpreter on the program."""
        env = {"URL": session.base_url, "KEY": session.api_key, "MODEL": session.model}
        return LaunchPlan((str(session.python), "-c", PRELUDE + self.options.code), env)


PRELUDE = """
import json, os, sys, time, urllib.error, urllib.request
def ask(text, path="/v1/chat/completions", key=os.environ["KEY"], **more):
    body = {"model": os.environ["MODEL"], "messages": [{"role": "user", "content": text}], **more}
    head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["URL"] + path, json.dumps(body).encode(), head)
    with urllib.request.urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]
"""


@longrein.hookimpl
def longrein_tasksets() -> list[type[TaskSet]]:
    """Register the tasks."""
    return [Doubling]


@longrein.hookimpl
def longrein_verifiers() -> list[type[Verifier]]:
    """Register the verifier."""
    return [RunOnce]


@longrein.hookimpl
def longrein_agents() -> list[type[AgentAdapter]]:
    """Register the agent."""
    return [Program]
