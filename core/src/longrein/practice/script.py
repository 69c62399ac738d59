"""The scripted policy that is recorded and then cloned: write the program, run the check, stop, in the agent's own format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from longrein.practice.tasks import SOLUTION
from longrein.tasks.examples import CHECK
from longrein.testing.scripted import Reply

PROMPT = "Practice statement stands here."
"""Stands for a task's prompt in recordings. It has blanks: agents quote prompts that have."""
PROGRAM = "print('practice program')"
OUTPUT = "practice check output"
"""Stand for a program and for what the check prints."""
MARKS = (PROMPT, PROGRAM, OUTPUT)
PASSED, FAILED = "The examples pass.", "The examples do not pass."


def answer(request: Mapping[str, Any], *, passes: bool) -> Reply:
    """Return the reply to a request.

    Args:
        request: an OpenAI chat request.
        passes: whether the check passes in this recording.
    """
    messages = request["messages"]
    names = {tool["function"]["name"] for tool in request.get("tools") or ()}
    if {"write", "bash"} <= names:
        n_results = sum(message["role"] == "tool" for message in messages)
        if n_results == 0:
            return Reply(tool_calls=[("write", {"filePath": SOLUTION, "content": PROGRAM + "\n"})])
        if n_results == 1:
            return Reply(tool_calls=[("bash", {"command": f"python3 {CHECK}", "description": "Run the examples"})])
        return Reply(PASSED if passes else FAILED)
    if "*file listing*" in text_of(messages[0]):
        # Without an edit Aider stops: the policy tries once and then says what came of it.
        return Reply(FAILED) if OUTPUT in text_of(messages[-1]) else Reply(f"{SOLUTION}\n```\n{PROGRAM}\n```")
    return Reply("Practice task")


def text_of(message: Mapping[str, Any]) -> str:
    """Return a message's text, whatever form its content has."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)
