"""The tests' side: objects of the workspace's code, which lives in another process. What comes from there is data."""

from __future__ import annotations

import base64
import builtins
import collections
import io
import json
import socket
import struct
import sys
from typing import Any

LONGEST = 64 << 20
"""Bytes of one answer."""
SHOWN = 2000
"""Characters of an object's repr."""
PASSED_ON = ("__name__", "__qualname__", "__doc__", "__version__", "__annotations__")
"""Attributes with such names that are asked for; others would let the code take part in what tests and pytest look up themselves."""


class ProgramEnded(Exception):
    """The workspace's code has ended its process, or an answer was no answer."""


class Link:
    """The connection with the workspace's process."""

    def __init__(self, descriptor: int) -> None:
        self._file = socket.socket(fileno=descriptor).makefile("rwb")
        self._known: dict[int, Any] = {}
        """Number to the object or exception class that stands for it here."""
        self.raised: BaseException | None = None
        """The last exception that came from there."""

    def ask(self, op: str, *arguments: Any) -> Any:
        """Return the answer to a request, or raise what the code raised."""
        request = {"op": op, "arguments": [self._encode(argument) for argument in arguments], "stdin": _typed()}
        data = json.dumps(request).encode()
        try:
            self._file.write(struct.pack("!I", len(data)) + data)
            self._file.flush()
            reply = self._receive()
        except (OSError, ValueError, RecursionError) as error:
            raise ProgramEnded(f"the program's process has ended or gives no answer: {type(error).__name__}") from None
        for stream, text in zip((sys.stdout, sys.stderr), reply["printed"], strict=True):
            stream.write(str(text))
        if "error" in reply:
            self.raised = self._exception(reply["error"])
            raise self.raised
        return self._decode(reply["value"])

    def _receive(self) -> dict[str, Any]:
        head = self._file.read(4)
        if len(head) < 4:
            raise EOFError
        (length,) = struct.unpack("!I", head)
        if length > LONGEST:
            self._file.close()
            raise ValueError
        reply = json.loads(self._file.read(length))
        if not isinstance(reply, dict) or len(reply.get("printed", ())) != 2 or not {"value", "error"} & set(reply):
            raise ValueError
        return reply

    def _encode(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if isinstance(value, Remote):
            return {"object": object.__getattribute__(value, "_number")}
        if type(value) in (list, tuple, set, frozenset):
            return {type(value).__name__: [self._encode(item) for item in value]}
        if type(value) is dict:
            return {"dict": [[self._encode(key), self._encode(item)] for key, item in value.items()]}
        if type(value) is bytes:
            return {"bytes": base64.b64encode(value).decode()}
        if type(value) is complex:
            return {"complex": [value.real, value.imag]}
        raise TypeError(f"a {type(value).__name__} cannot be passed to the program: it takes plain data and its own objects")

    def _decode(self, data: Any) -> Any:
        if not isinstance(data, dict):
            return [self._decode(item) for item in data] if isinstance(data, list) else data
        if "object" in data:
            return self._object(data["object"], data.get("module"))
        if "exception" in data or "builtin" in data:
            return self._exception_class(data)
        if "named" in data:
            named: Any = collections.namedtuple(data["named"], data["fields"])  # type: ignore[misc]
            return named(*map(self._decode, data["items"]))
        ((kind, value),) = data.items()
        if kind == "bytes":
            return base64.b64decode(value)
        if kind == "complex":
            return complex(*value)
        if kind == "dict":
            return {self._decode(key): self._decode(item) for key, item in value}
        return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[kind](map(self._decode, value))

    def _object(self, number: int, module: str | None) -> Any:
        imported = sys.modules.get(module or "")
        found = self._known.setdefault(number, Remote(self, number))
        return imported if isinstance(imported, RemoteModule) and imported.__dict__.get("_remote") is found else found

    def _exception_class(self, data: dict[str, Any]) -> type[BaseException]:
        if "builtin" in data:
            found = getattr(builtins, data["builtin"], None)
            if not (isinstance(found, type) and issubclass(found, BaseException)) or found in (KeyboardInterrupt, GeneratorExit):
                return RuntimeError  # those two would end pytest itself
            return found
        if data["exception"] not in self._known:
            bases = tuple(self._exception_class(base) for base in data["bases"]) or (Exception,)
            self._known[data["exception"]] = type(str(data["name"]), bases, {"__getattr__": _from_program})
        known: type[BaseException] = self._known[data["exception"]]
        return known

    def _exception(self, data: dict[str, Any]) -> BaseException:
        cls, text = self._exception_class(data["class"]), str(data["text"])
        for arguments in (self._decode(data["arguments"]), [text]):
            try:
                error = cls(*arguments)
                break
            except Exception:
                continue
        else:
            return RuntimeError(text)
        error._remote = self._object(data["value"]["object"], None)  # type: ignore[attr-defined]
        return error


def _from_program(error: BaseException, name: str) -> Any:
    if name.startswith("_") or "_remote" not in error.__dict__:
        raise AttributeError(name)
    return getattr(error.__dict__["_remote"], name)


def _typed() -> str | None:
    """Return what a test has put in place of standard input and nobody has read."""
    if not isinstance(sys.stdin, (io.StringIO, io.TextIOWrapper)) or getattr(sys.stdin, "name", None) is not None:
        return None
    text = sys.stdin.read()
    return text or None


class Remote:
    """An object of the workspace's code. Whatever a test does with it is asked for there."""

    def __init__(self, link: Link, number: int) -> None:
        object.__setattr__(self, "_link", link)
        object.__setattr__(self, "_number", number)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in PASSED_ON:
            raise AttributeError(name)
        return self._link.ask("get", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._link.ask("set", self, name, value)

    def __delattr__(self, name: str) -> None:
        self._link.ask("delete", self, name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._link.ask("call", self, list(arguments), keywords)

    def __repr__(self) -> str:
        return str(self._link.ask("operate", "repr", self, []))[:SHOWN]

    def __eq__(self, other: object) -> bool:
        """Never equal to plain data: an object that claims to be equal to everything would pass."""
        return isinstance(other, Remote) and bool(self._link.ask("operate", "__eq__", self, [other]))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, Remote) and bool(self._link.ask("operate", "isinstance", self, [instance]))

    def __enter__(self) -> Any:
        return self._link.ask("operate", "enter", self, [])

    def __exit__(self, *_error: object) -> None:
        self._link.ask("operate", "exit", self, [])

    def __hash__(self) -> int:
        return int(self._link.ask("operate", "hash", self, []))


def _operator(name: str) -> Any:
    def operate(self: Remote, *arguments: Any) -> Any:
        return self._link.ask("operate", name, self, list(arguments))

    return operate


for _name in ("len", "iter", "next", "str", "bool", "int", "float", "abs", "reversed"):
    setattr(Remote, f"__{_name}__", _operator(_name))
for _name in ("getitem", "setitem", "delitem", "contains", "lt", "le", "gt", "ge", "add", "sub", "mul", "truediv", "floordiv", "mod"):
    setattr(Remote, f"__{_name}__", _operator(f"__{_name}__"))
for _name in ("pow", "matmul", "and", "or", "xor", "neg", "invert"):
    setattr(Remote, f"__{_name}__", _operator(f"__{_name}__"))


class RemoteModule(type(sys)):  # type: ignore[misc]
    """A module of the workspace."""

    def __getattr__(self, name: str) -> Any:
        if (name.startswith("__") and name not in PASSED_ON) or "_remote" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.__dict__["_remote"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_") or isinstance(value, RemoteModule):
            super().__setattr__(name, value)
        else:
            setattr(self.__dict__["_remote"], name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__:
            super().__delattr__(name)
        else:
            delattr(self.__dict__["_remote"], name)
