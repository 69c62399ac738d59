"""The prompt of a row: its statement without the data set's own instructions, and what to write where."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from longrein.model import Example
from longrein_deepcoder.rows import NormalRow

SOLUTION = "solution.py"

_BOILERPLATE = re.compile(
    r"\A\s*Solve the following coding problem using the programming language python:?\s*"
    r"|\s*Now solve the problem and return the code\.?\s*\Z"
    r"|^[ \t]*The input will be [^\n]{0,20}stdin and [^\n]{0,60}stdout[^\n]{0,20}$",
    re.I | re.M,
)
SHOWN = 1000
"""Longer examples are named in the prompt, not shown."""


def statement(problem: str) -> str:
    """Return the problem text without the boilerplate that fights the instruction to write a file."""
    text = problem.strip()
    while (shorter := _BOILERPLATE.sub("", text).strip()) != text:
        text = shorter
    return text


def prompt(row: Mapping[str, Any], normal: NormalRow, examples: tuple[Example, ...]) -> str:
    """Return what the agent is asked."""
    parts = [statement(str(row.get("problem") or ""))]
    starter = str(row.get("starter_code") or "").strip()
    if starter:
        parts.append(f"Start from this code:\n```python\n{starter}\n```")
    if normal.kind == "call":
        place = "as a method of class `Solution`" if "class Solution" in starter else "as a top-level function"
        parts.append(f"Write `{normal.fn_name}` {place} to `{SOLUTION}`. It is called with the arguments and its return value is checked.")
    else:
        parts.append(f"Write the program to `{SOLUTION}`. It reads standard input and prints to standard output.")
    for number, example in enumerate(examples, start=1):
        if len(example.stdin) + len(example.stdout) > SHOWN:
            parts.append(f"Example {number} is in `examples/{number}.in` and `examples/{number}.out`.")
        else:
            parts.append(f"Example {number}:\nInput:\n```\n{example.stdin.rstrip()}\n```\nOutput:\n```\n{example.stdout.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
