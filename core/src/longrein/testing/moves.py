"""How a scripted policy speaks to an agent with native tools: replies made from the tools that its request offers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from attrs import frozen

from longrein.testing.scripted import Reply
from longrein.turns import messages as msg

COMMAND = ("command", "cmd", "script", "code")
PATH = ("file_path", "filePath", "absolute_path", "path", "filename", "file")
CONTENT = ("content", "contents", "text", "file_text")
QUESTION = ("ask", "question")

Call = tuple[str, Mapping[str, Any]]


@frozen
class Asked:
    """A request of the agent's, in chat form whatever its dialect."""

    body: Mapping[str, Any]
    workdir: PurePosixPath
    """The session's folder inside the sandbox."""

    @property
    def tools(self) -> Mapping[str, Mapping[str, Any]]:
        """Tool name to the JSON schema of its arguments."""
        functions = [tool["function"] for tool in self.body.get("tools") or () if "function" in tool]
        return {function["name"]: function.get("parameters") or {} for function in functions}

    @property
    def text(self) -> str:
        """All text of the messages."""
        return "\n".join(block for message in self.body["messages"] for block in msg.blocks(message))

    def said(self, role: str) -> str:
        """Return all text of the messages of a role."""
        return "\n".join(block for message in self.body["messages"] if message["role"] == role for block in msg.blocks(message))


def write(asked: Asked, files: Mapping[str, str]) -> Reply | None:
    """Return one reply that writes files (path below the workspace to text): a call for each, by a writing tool or a shell."""
    calls = [_write(asked, str(asked.workdir / name), text) for name, text in files.items()]
    found = [call for call in calls if call is not None]
    return Reply("I write.", found) if len(found) == len(files) else None


def run(asked: Asked, command: str) -> Reply | None:
    """Return a reply that runs a shell command, or None when no tool does that."""
    call = _run(asked, command)
    return Reply("I run it.", [call]) if call else None


def question(asked: Asked, text: str) -> Reply:
    """Return a reply that asks the person at the terminal: through a tool for it where there is one, else in words."""
    for name, schema in asked.tools.items():
        if any(word in name.lower() for word in QUESTION):
            return Reply(text, [(name, _filled(schema, {}))])
    return Reply(text)


def _write(asked: Asked, path: str, text: str) -> Call | None:
    for name, schema in asked.tools.items():
        at, what = _property(schema, PATH), _property(schema, CONTENT)
        if at and what and not any(word in name.lower() for word in ("edit", "replace", "append")):
            return name, _filled(schema, {at: path, what: text})
    marker = "END_OF_FILE"
    body = text if not text or text.endswith("\n") else f"{text}\n"
    folder = shlex.quote(str(PurePosixPath(path).parent))
    return _run(asked, f"mkdir -p {folder} && cat > {shlex.quote(path)} <<'{marker}'\n{body}{marker}")


def _run(asked: Asked, command: str) -> Call | None:
    for name, schema in asked.tools.items():
        key = _property(schema, COMMAND)
        if key:
            kind = schema["properties"][key].get("type")
            return name, _filled(schema, {key: ["bash", "-c", command] if kind == "array" else command})
    return None


def _property(schema: Mapping[str, Any], names: Iterable[str]) -> str | None:
    properties = schema.get("properties") or {}
    return next((name for name in names if name in properties), None)


def _filled(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments that hold `given` and a harmless value for whatever else the schema requires."""
    properties = schema.get("properties") or {}
    return {**{name: _value(properties.get(name) or {}) for name in schema.get("required") or () if name not in given}, **given}


def _value(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return _filled(schema, {})
    if kind == "array":
        return [_value(schema.get("items") or {}) for _ in range(max(1, schema.get("minItems") or 0))]
    return {"boolean": False, "integer": 1, "number": 1, "null": None}.get(str(kind), "go on")
