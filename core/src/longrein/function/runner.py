"""Runs one function on one task, inside the sandbox: `python runner.py task.json`. Standard library, and `openai` where it is there."""

import asyncio
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


class Task:
    """What a function is asked."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self.prompt = given["prompt"]
        self.files = given["files"]
        """Paths of the files placed in the workspace."""
        self.workdir = Path(given["workdir"])
        """The workspace, which is the current folder too."""
        self.model = given["model"]
        """The model's name, for the client."""
        self.check = given["check"]
        """Shell command that runs the public examples, or None."""


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for longrein, which is not here: a file that uses its decorator, or runs it below a main guard, is imported all the same."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if fullname.split(".")[0] == "longrein" else None

    def exec_module(self, module: Any) -> None:
        module.__getattr__ = lambda name: lambda given=None, *more, **named: given


def main() -> None:
    """Import the function, give it its client and its task, and wait for it."""
    sys.meta_path.insert(0, Absent())
    given = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    function = getattr(importlib.import_module(given["module"]), given["function"])
    waits = inspect.iscoroutinefunction(function)
    try:
        import openai
    except ImportError:
        client: Any = None
    else:
        client = openai.AsyncOpenAI() if waits else openai.OpenAI()
    answer = function(client, Task(given))
    if waits:
        asyncio.run(answer)


if __name__ == "__main__":
    main()
