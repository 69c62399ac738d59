"""A tool loop in few lines, run inside the sandbox with the standard library alone.

Ask, run the tools that the reply calls, ask again; end at a reply without a tool call. Nothing is planned, summarised or repaired.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

RULES = """\
You are a coding agent. You work alone: nobody answers questions.
Use the tools to read and write files and to run commands in the current folder.
When the task is done, say so in a reply without a tool call.
"""
ENVIRONMENT_RULES = """\
You work alone: nobody answers questions. Use the tools.
When the task is done, say so in a reply without a tool call.
"""
LONGEST = 16_000
"""Characters of a tool's result; the middle of a longer one is left out."""


def tool(name: str, description: str, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """Return a tool whose arguments are strings, as chat requests name it."""
    properties = {key: {"type": "string"} for key in (*required, *optional)}
    parameters = {"type": "object", "properties": properties, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TOOLS = [
    tool("write", "Write a file, in place of an older one.", ["filePath", "content"]),
    tool("read", "Return the content of a file.", ["filePath"]),
    tool("bash", "Run a shell command and return its exit code and output.", ["command"], ["description"]),
]


def write(filePath: str, content: str) -> str:
    """Write a file."""
    path = pathlib.Path(filePath)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return "written"


def read(filePath: str) -> str:
    """Return a file's text."""
    return pathlib.Path(filePath).read_text(encoding="utf-8", errors="replace")


def bash(command: str, description: str = "") -> str:
    """Run a command to its end or its time limit, with all that it started in the foreground."""
    limit_s = float(os.environ["COMMAND_TIMEOUT_S"])
    # A file and no pipe: a process left in the background would hold a pipe open, and endless output fills no memory.
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command, shell=True, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            ended = f"exit code {child.wait(limit_s)}"
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            ended = f"killed after {limit_s:g} s"
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - 4 * LONGEST))
        return f"{output.read().decode(errors='replace')}\n{ended}"


class Environment:
    """The tools of an environment, behind a program that speaks MCP on its standard input and output."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.program = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.n_sent = 0
        client = {"name": "react", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client})
        self.send({"method": "notifications/initialized"})
        self.tools = self.ask("tools/list", {})["tools"]

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""
        assert self.program.stdin is not None
        self.program.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.program.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a request; what the other side says in between is passed over."""
        assert self.program.stdout is not None
        self.n_sent += 1
        self.send({"id": self.n_sent, "method": method, "params": params})
        while line := self.program.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self.n_sent:
                if "error" in answer:
                    raise RuntimeError(answer["error"]["message"])
                result: dict[str, Any] = answer["result"]
                return result
        sys.exit("the environment has ended")

    def manifest(self) -> list[dict[str, Any]]:
        """Return the tools as chat requests name them."""
        return [
            {"type": "function", "function": {"name": t["name"], "description": t["description"], "parameters": t["inputSchema"]}}
            for t in self.tools
        ]

    def functions(self) -> dict[str, Callable[..., str]]:
        """Return the tools as functions."""
        return {t["name"]: partial(self.call, t["name"]) for t in self.tools}

    def call(self, name: str, /, **arguments: Any) -> str:
        """Return the text of a tool's result."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        text = "\n".join(part.get("text", "") for part in result["content"])
        return f"error: {text}" if result.get("isError") else text


def use(call: dict[str, Any], tools: Mapping[str, Callable[..., str]]) -> str:
    """Return the result of a tool call; whatever goes wrong is a result too."""
    try:
        result = tools[call["function"]["name"]](**json.loads(call["function"]["arguments"] or "{}"))
    except Exception as error:
        result = f"error: {type(error).__name__}: {error}"
    half = LONGEST // 2
    return result if len(result) <= LONGEST else f"{result[:half]}\n[{len(result) - LONGEST} characters left out]\n{result[-half:]}"


def ask(messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the reply of the model as a message."""
    body = {"model": os.environ["OPENAI_MODEL"], "messages": messages, "tools": tools}
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request) as reply:
            message = json.load(reply)["choices"][0]["message"]
    except urllib.error.HTTPError as error:
        sys.exit(f"the model answered with status {error.code}: {error.read(2000).decode(errors='replace')}")
    return {key: value for key, value in message.items() if value is not None}


def main() -> None:
    """Work on the task until the model says that it is done."""
    max_turns = int(os.environ["MAX_TURNS"])
    rules, manifest = RULES, TOOLS
    tools: Mapping[str, Callable[..., str]] = {"write": write, "read": read, "bash": bash}
    if "MCP" in os.environ:
        environment = Environment(json.loads(os.environ["MCP"]))
        rules, manifest, tools = ENVIRONMENT_RULES, environment.manifest(), environment.functions()
    messages: list[dict[str, Any]] = [{"role": "system", "content": rules}, {"role": "user", "content": os.environ["PROMPT"]}]
    for _ in range(max_turns):
        reply = ask(messages, manifest)
        messages.append(reply)
        print(reply.get("content") or "", flush=True)
        if not reply.get("tool_calls"):
            return
        for call in reply["tool_calls"]:
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": use(call, tools)})
    print(f"stopped after {max_turns} turns", file=sys.stderr)


if __name__ == "__main__":
    main()
