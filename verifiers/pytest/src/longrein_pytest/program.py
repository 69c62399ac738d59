"""The workspace's side: `python program.py FD FOLDER` imports and runs its code, in a sandbox of its own, as the tests ask.

Standard library only; nothing of longrein is there. A message is a length of 4 bytes and JSON. What is not plain data stays
here, and the tests get a number for it. The code that runs here may change anything in this process: all that it can do is
to answer.
"""

from __future__ import annotations

import base64
import collections
import enum
import importlib
import io
import json
import operator
import os
import socket
import struct
import subprocess
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEXT = 1 << 20
"""Characters kept of what is printed in one call."""
BY_NAME: dict[str, Any] = {
    "len": len,
    "iter": iter,
    "next": next,
    "repr": repr,
    "str": str,
    "bool": bool,
    "hash": hash,
    "int": int,
    "float": float,
}
BY_NAME |= {"isinstance": lambda cls, value: isinstance(value, cls), "enter": lambda context: type(context).__enter__(context)}
BY_NAME |= {"exit": lambda context: type(context).__exit__(context, None, None, None), "abs": abs, "reversed": reversed}


class Program:
    """Answers one request after the other."""

    def __init__(self, link: socket.socket) -> None:
        self.file = link.makefile("rwb")
        self.objects: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.replaced: dict[tuple[int, str], Any] = {}
        self.printed = (capture(), capture())
        sys.stdout, sys.stderr = self.printed

    def serve(self) -> None:
        """Answer until the tests have gone."""
        while len(head := self.file.read(4)) == 4:
            reply = json.dumps(self.answer(json.loads(self.file.read(*struct.unpack("!I", head))))).encode()
            self.file.write(struct.pack("!I", len(reply)) + reply)
            self.file.flush()

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what a request asks for."""
        if request.get("stdin") is not None:
            sys.stdin = io.TextIOWrapper(io.BytesIO(request["stdin"].encode("utf-8", "surrogateescape")), encoding="utf-8")
        try:
            reply = {"value": self.encode(getattr(self, f"do_{request['op']}")(*map(self.decode, request["arguments"])))}
        except BaseException as error:  # whatever the code raises is for the test to see
            reply = {"error": self.failure(error)}
        reply["printed"] = [taken(stream) for stream in self.printed]
        return reply

    def do_import(self, name: str, again: bool) -> Any:
        """Import a module of the workspace, anew when the tests have forgotten it."""
        if again:
            sys.modules.pop(name, None)
        return importlib.import_module(name)

    def do_package(self, name: str) -> bool:
        """Return whether a module may have modules in it."""
        return hasattr(sys.modules[name], "__path__")

    def do_get(self, target: Any, name: str) -> Any:
        """Return an attribute."""
        return getattr(target, name)

    def do_set(self, target: Any, name: str, value: Any) -> None:
        """Set an attribute; what it was is kept."""
        if hasattr(target, name):
            self.replaced.setdefault((id(target), name), getattr(target, name))
        setattr(target, name, value)

    def do_delete(self, target: Any, name: str) -> None:
        """Delete an attribute, or undo what tests have set: that is what monkeypatch means by it."""
        if (id(target), name) in self.replaced:
            setattr(target, name, self.replaced.pop((id(target), name)))
        else:
            delattr(target, name)

    def do_call(self, target: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Call an object."""
        return target(*arguments, **keywords)

    def do_operate(self, name: str, target: Any, arguments: list[Any]) -> Any:
        """Apply an operator."""
        return (BY_NAME.get(name) or getattr(operator, name))(target, *arguments)

    def do_run(self, path: str, arguments: list[str], stdin: str, timeout_s: float) -> list[Any]:
        """Run a script of the workspace as a program."""
        done = subprocess.run([sys.executable, path, *arguments], input=stdin.encode(), capture_output=True, timeout=timeout_s, check=False)
        return [done.returncode, *(text[:TEXT].decode("utf-8", "replace") for text in (done.stdout, done.stderr))]

    def failure(self, error: BaseException) -> dict[str, Any]:
        """Return an exception as data."""
        try:
            arguments, text = self.encode(list(error.args)), str(error)
        except Exception:
            arguments, text = self.encode([]), "an exception that cannot be shown"
        return {"class": self.encode(type(error)), "arguments": arguments, "text": text, "value": self.reference(error)}

    def encode(self, value: Any) -> Any:
        """Return plain data as JSON, anything else as a number."""
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, type) and issubclass(value, BaseException):
            if value.__module__ == "builtins":
                return {"builtin": value.__name__}
            bases = [self.encode(base) for base in value.__bases__ if issubclass(base, BaseException)]
            return {"exception": self.reference(value)["object"], "name": value.__name__, "bases": bases}
        if isinstance(value, enum.Enum):
            return self.reference(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"named": type(value).__name__, "fields": list(value._fields), "items": [self.encode(item) for item in value]}
        for kind in (list, tuple, set, frozenset):
            if isinstance(value, kind):
                return {kind.__name__: [self.encode(item) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[self.encode(key), self.encode(item)] for key, item in value.items()]}
        if isinstance(value, (bytes, bytearray)):
            return {"bytes": base64.b64encode(value).decode()}
        if isinstance(value, collections.deque):
            return {"list": [self.encode(item) for item in value]}
        if isinstance(value, complex):
            return {"complex": [value.real, value.imag]}
        for plain in (int, float, str):
            if isinstance(value, plain):
                return plain(value)
        if callable(getattr(type(value), "tolist", None)):  # arrays and scalars of numpy
            return self.encode(value.tolist())
        return self.reference(value)

    def reference(self, value: Any) -> dict[str, Any]:
        """Return the number of an object that stays here; the same object has the same number."""
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.objects)
            self.objects.append(value)
        found = {"object": self.numbers[id(value)]}
        return {**found, "module": value.__name__} if isinstance(value, types.ModuleType) else found

    def decode(self, data: Any) -> Any:
        """Return what the tests have sent."""
        if not isinstance(data, dict):
            return data
        ((kind, value),) = data.items()
        if kind == "object":
            return self.objects[value]
        if kind == "bytes":
            return base64.b64decode(value)
        if kind == "complex":
            return complex(*value)
        if kind == "dict":
            return {self.decode(key): self.decode(item) for key, item in value}
        return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](map(self.decode, value))


def capture() -> io.TextIOWrapper:
    """Return a stream that keeps what is written."""
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="replace", write_through=True)


def taken(stream: io.TextIOWrapper) -> str:
    """Return what was written and empty the stream."""
    try:
        buffer: Any = stream.buffer
        text: str = buffer.getvalue()[:TEXT].decode("utf-8", "replace")
        buffer.seek(0)
        buffer.truncate()
    except (ValueError, AttributeError):  # closed or replaced by the code
        return ""
    return text


def main() -> None:
    """Serve the tests."""
    folder = os.path.abspath(sys.argv[2])  # noqa: PTH100
    sys.path[:0] = [folder, os.path.join(folder, "src")]  # noqa: PTH118
    sys.set_int_max_str_digits(100_000)
    link = socket.socket(fileno=int(sys.argv[1]))
    sys.argv[:] = [""]
    Program(link).serve()


if __name__ == "__main__":
    main()
