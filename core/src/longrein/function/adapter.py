"""The agent "function": a Python function in a process of its own inside the sandbox, with a client that is captured."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from attrs import Attribute, field, frozen

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.errors import ConfigError, UnknownNameError
from longrein.function.packages import CLIENT, folders_of, requirements
from longrein.model import Action, ActionKind, SessionResult

WORDS: dict[ActionKind, tuple[str, ...]] = {
    "edit": ("write", "edit", "patch", "replace", "create", "insert"),
    "run": ("run", "bash", "shell", "exec", "command", "terminal", "python"),
    "search": ("search", "grep", "glob", "find"),
    "read": ("read", "view", "open", "list", "cat"),
}
"""Words in the names of tools, and the kind of action they mean."""
RUNNER = Path(__file__).with_name("runner.py")


def _target(_instance: Any, _attribute: Attribute[Any], value: str) -> None:
    if not re.fullmatch(r".+:[A-Za-z_]\w*", value):
        raise ValueError(f"target must be 'package.module:function' or 'path/to/file.py:function', got {value!r}")


@frozen
class FunctionOptions:
    """[agents.function]"""

    target: str = field(validator=_target)
    """Import path of the function, "package.module:function" or "path/to/file.py:function"."""
    packages: tuple[str, ...] = ()
    """Installed packages that it imports; the `openai` package is always there where it is installed. Requirements come along."""


class FunctionAgent(AgentAdapter):
    """Runs `async def my_agent(client, task)`, or a plain function, once for each session.

    `client` is `openai.AsyncOpenAI` (`openai.OpenAI` for a plain function) on the session's endpoint, or None where the package
    is not installed; other SDKs find the endpoint in the environment. `task` has `prompt`, `files`, `workdir`, `model`, `check`.
    """

    name: ClassVar[str] = "function"
    # What a function does with its history is its own affair; drift is allowed.
    capabilities: ClassVar[Capabilities] = Capabilities(dialect="chat", history="rewrites", tools=True)
    Options: ClassVar[type] = FunctionOptions
    options: FunctionOptions

    def __init__(self, options: FunctionOptions) -> None:
        super().__init__(options)
        self._module, self._source = _located(options.target)
        self._folders = folders_of((CLIENT, *options.packages, *requirements(self._module.partition(".")[0])), given=options.packages)

    def launch(self, session: Session) -> LaunchPlan:
        """Return how to start the runner on the task; the function's source and its packages are read-only in the sandbox."""
        runner, task = f"{session.home}/function.py", f"{session.home}/task.json"
        folders = dict.fromkeys([self._source.parent, *(folder.parent for folder in self._folders)])
        _, _, name = self.options.target.rpartition(":")
        given = {
            "module": self._module,
            "function": name,
            "prompt": session.task.prompt,
            "files": sorted(session.task.files),
            "workdir": str(session.workdir),
            "model": session.model,
            "check": session.check_command,
        }
        return LaunchPlan(
            argv=[str(session.python), runner, task],
            env={
                "OPENAI_BASE_URL": f"{session.base_url}/v1",
                "OPENAI_API_KEY": session.api_key,
                "ANTHROPIC_BASE_URL": session.base_url,
                "ANTHROPIC_API_KEY": session.api_key,
                "PYTHONPATH": ":".join(map(str, folders)),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PYTHONUNBUFFERED": "1",
            },
            files={runner: RUNNER.read_text(encoding="utf-8"), task: json.dumps(given)},
            read_only=[self._source, *self._folders],
        )

    def actions(self, result: SessionResult) -> Sequence[Action]:
        """Return the tool calls of the replies; what a tool does is told from its name."""
        delivered = (turn.call.reply for turn in result.trajectory if turn.call.delivered)
        functions = [call["function"] for reply in delivered for call in reply.get("tool_calls") or ()]
        return [Action(_kind(str(f.get("name"))), str(f.get("name")), str(f.get("arguments"))[:200]) for f in functions]


def _kind(tool: str) -> ActionKind:
    return next((kind for kind, words in WORDS.items() if any(word in tool.lower() for word in words)), "other")


def _located(target: str) -> tuple[str, Path]:
    """Return the module of a target and what must be seen of its source: a file, or the top package's folder.

    Raises:
        ConfigError: there is no such module or file, or no such function in it.
    """
    where, _, name = target.rpartition(":")
    if where.endswith(".py"):
        file = Path(where).expanduser().resolve()
        if not file.is_file():
            raise ConfigError(f"target {target!r}: there is no file {file}")
        module, source = file.stem, file
    else:
        try:
            spec = importlib.util.find_spec(where)
        except (ImportError, ValueError):
            spec = None
        if spec is None or spec.origin is None or not Path(spec.origin).is_file():
            raise ConfigError(f"target {target!r}: there is no module {where!r} here; install its package, or name its file")
        module, file = where, Path(spec.origin).resolve()
        depth = where.count(".") + (file.name == "__init__.py")
        source = file.parents[depth - 1] if depth else file
    names = _names(file)
    if name not in names:
        raise UnknownNameError(f"function in {file}", name, names)
    return module, source


def _names(file: Path) -> list[str]:
    """Return the names that a module's top level binds, without running it."""
    found: list[str] = []
    for node in ast.parse(file.read_text(encoding="utf-8"), str(file)).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.append(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found += [alias.asname or alias.name for alias in node.names]
        elif isinstance(node, ast.Assign):
            found += [target.id for target in node.targets if isinstance(target, ast.Name)]
    return found
