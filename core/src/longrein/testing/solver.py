"""A scripted policy that solves tasks through opencode and Aider, for demos and tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from longrein.testing.scripted import Reply, Script


def solver(solutions: Mapping[str, str] | Callable[[str], str], *, file: str = "solution.py") -> Script:
    """Return a script that writes a program, runs it and stops, in the form the asking agent wants.

    Args:
        solutions: task prompt to program (the prompt is searched for in what the agent sent), or a function from all the
            text of the request to the program.
        file: name of the file to write.
    """

    def script(request: dict[str, Any]) -> Reply:
        text = "\n".join(_text(message) for message in request["messages"] if message["role"] in ("system", "user"))
        program = solutions(text) if callable(solutions) else next((p for prompt, p in solutions.items() if prompt.strip() in text), "")
        names = {tool["function"]["name"] for tool in request.get("tools") or []}
        if {"write", "bash"} <= names:
            return _opencode(request["messages"], text, program, file)
        if not names and f"{file}\n" in text and "file listing" in text:
            return Reply(f"{file}\n```\n{program.rstrip()}\n```")
        return Reply("Solve the task")

    return script


def _opencode(messages: list[dict[str, Any]], text: str, program: str, file: str) -> Reply:
    folder = re.search(r"[Ww]orking directory: (\S+)", text)
    path = f"{folder.group(1)}/{file}" if folder else file
    last_user = max(i for i, message in enumerate(messages) if message["role"] == "user")
    n_results = sum(message["role"] == "tool" for message in messages[last_user:])
    if n_results == 0:
        return Reply("I write the program.", [("write", {"content": program, "filePath": path})])
    if n_results == 1:
        return Reply("", [("bash", {"command": f"python3 -m py_compile {file}", "description": "Check that the program compiles"})])
    return Reply("The program is written and compiles.")


def _text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
