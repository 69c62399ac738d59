"""A plugin file: hostile agents from the table of attacks, honest ones beside them, and one task whose hidden case is a canary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from attrs import field, frozen
from tests.e2e import attacks, attacks_break
from tests.e2e.attacks import Attack

import longrein
from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.model import Example, PublicTask, Task, TaskRef
from longrein.tasks.examples import with_examples
from longrein.verifier import TaskSet

SOLUTION = "print(2 * int(input()))\n"
ATTACKS = (*attacks.ATTACKS, *attacks_break.ATTACKS)
NEIGHBOUR = "neighbour"
KEYS: dict[str, str] = {}
"""Agent name to the key of its latest session, for the thief."""

PRELUDE = """
import atexit, json, os, signal, socket, stat, subprocess, sys, threading, time, urllib.error, urllib.request
URL, KEY, MODEL, n_refused = os.environ["URL"], os.environ["KEY"], os.environ["MODEL"], 0
atexit.register(lambda: print("refused", n_refused, flush=True))
def ask(text, path="/v1/chat/completions", key=KEY, url=URL, method="POST", body=None):
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}]}).encode() if body is None else body
    head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, body if method == "POST" else None, head, method=method)
    with urllib.request.urlopen(request, timeout=500) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]
def won(*what):
    print("ESCAPED", *what, flush=True)
def refused(what, function):
    global n_refused
    try:
        value = function()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        n_refused += 1
        return error
    won(what, value)
def syscall(*arguments):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(*map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), str(arguments))
ask("go")
"""


class Secret(TaskSet):
    """One task; the hidden output is the canary, which also stands in files of the host that `folder` names."""

    name: ClassVar[str] = "secret"

    def tasks(self) -> Iterator[Task]:
        """Yield the task."""
        public = PublicTask("Print twice the number. Write the program to solution.py.", examples=(Example("3\n", "6\n"),))
        yield Task("twice", "digest", with_examples(public), TaskRef("secret", "twice"), "deepcoder")

    def hidden(self, task_id: str) -> Any:
        """Return the hidden cases, in the form of the verifier "deepcoder"."""
        cases = [{"input": "4\n", "output": "8\n"}, {"input": "38514773\n", "output": "77029546\n"}]
        return {"kind": "stdin", "fn_name": None, "cases": cases, "compare": "lines"}


class Honest(AgentAdapter):
    """Asks once and writes what it gets."""

    name: ClassVar[str] = "honest"
    capabilities: ClassVar[Capabilities] = Capabilities(tools=False)
    code: ClassVar[str] = "open('solution.py', 'w').write(ask('solve'))"

    @frozen
    class Options:
        """`host` holds what attackers would love to know about the host; they get it as environment variables."""

        host: Mapping[str, str] = field(factory=dict)

    def launch(self, session: Session) -> LaunchPlan:
        """Run the program with the prelude before it."""
        KEYS[self.name] = session.api_key
        env = {
            "URL": session.base_url,
            "KEY": session.api_key,
            "MODEL": session.model,
            **self.options.host,
            "STOLEN": KEYS.get(NEIGHBOUR, ""),
        }
        script = f"{session.home}/agent.py"
        return LaunchPlan((str(session.python), "-I", script), env, {script: PRELUDE + self.code})


class Neighbour(Honest):
    """An honest agent whose reply comes when a thief has tried its key."""

    name: ClassVar[str] = NEIGHBOUR
    code: ClassVar[str] = "open('solution.py', 'w').write(ask('solve late'))"


def hostile(attack: Attack) -> type[AgentAdapter]:
    """Return the adapter of an attack; one in shell is run by a Python agent that has had its reply."""
    shell = f"sys.stdout.flush(); os.execvp('sh', ['sh', '-c', {attack.code!r}])"
    return type(attack.name, (Honest,), {"name": attack.name, "code": shell if attack.shell else attack.code})


@longrein.hookimpl
def longrein_tasksets() -> list[type[TaskSet]]:
    """Register the task."""
    return [Secret]


@longrein.hookimpl
def longrein_agents() -> list[type[AgentAdapter]]:
    """Register all agents."""
    return [Honest, Neighbour, *map(hostile, ATTACKS)]
