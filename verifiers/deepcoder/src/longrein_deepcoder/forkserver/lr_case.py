"""One case, in its own process: run the program as an interpreter would, end as an interpreter would."""

from __future__ import annotations

import _signal
import atexit
import builtins
import fcntl
import gc
import marshal
import os
import resource
import sys

import lr_wire as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType
    from typing import Any, NoReturn

MB = 1 << 20
STACK = 120 * MB
"""The kernel leaves at least 128 MB for the stack of a process started with a smaller limit."""
ADDRESS_SPACE_EXTRA = 4096 * MB
"""Reserved but untouched memory (thread stacks, numeric libraries) does not count; what is touched is watched by the init."""
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
CODE, ARGUMENTS, RESULT = 200, 201, 202
"""Descriptors of a case besides the standard ones: the first case's code, a call's arguments and value."""
STREAMS = (0, 1, 2, ARGUMENTS, RESULT)
"""What a request for a case brings, in this order: standard input, output and error; for a call also the arguments and the value."""


def hide_server(ours: tuple[str, ...]) -> None:
    """Take our modules and folder out of the programs' sight."""
    for name in ours:
        sys.modules.pop(name, None)
    sys.path[:] = sys.path[1:]


def shadowed(own: Iterable[str], startup: frozenset[str]) -> list[str]:
    """Return the loaded modules that give way to those in the working folder.

    Args:
        own: names of modules in the working folder.
        startup: the modules that a plain interpreter has, which do not.
    """
    return [name for name in sys.modules if name not in startup and name.partition(".")[0] in own] if own else []


def import_ahead(ahead: Iterable[str]) -> None:
    """Import what programs import at their beginning."""
    for name in ahead:
        try:
            __import__(name)
        except BaseException:
            pass  # the program will see it fail


def limit(limits: dict[str, Any]) -> None:
    """Set the limits that all cases share, in the server; CPU and memory in use are watched by the init."""
    for which, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_AS, limits["memory_mb"] * MB + ADDRESS_SPACE_EXTRA),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_STACK, STACK),
    ):
        _lower(which, most)


def limit_program(limits: dict[str, Any], *, largest: int, others: int) -> None:
    """Set the limits of this init and its cases that depend on the program.

    Args:
        largest: size of the workspace's largest file, which the init has to write again.
        others: processes of the same user that the kernel counts too.
    """
    _lower(resource.RLIMIT_MEMLOCK, 0)
    _lower(resource.RLIMIT_NPROC, limits["max_processes"] + others)
    _lower(resource.RLIMIT_FSIZE, max(limits["output_kb"] << 10, largest))


def _lower(which: int, most: int) -> None:
    _, hard = resource.getrlimit(which)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(which, (most, most))


def dress(work: str, *, is_call: bool) -> dict[str, Any]:
    """Give the cases that will be forked what `python solution.py` has: argv and main module.

    Returns:
        the namespace of the program's module, named "solution" for a call so that a main guard does not run.
    """
    name = "solution" if is_call else "__main__"
    module = type(sys)(name)
    module.__dict__.update(__file__=f"{work}/solution.py", __builtins__=builtins, __cached__=None)
    sys.modules.pop("solution", None)
    sys.modules["__main__"] = sys.modules[name] = module
    sys.argv[:] = ["solution.py"]
    return module.__dict__


class Case:
    """What a process is to run. The init makes it once and puts the descriptors of each case in their places before it forks.

    Args:
        request: the program's kind and fn_name.
        namespace: of the program's module.
        work: the program's folder. Only the forks have it in their path, so the init cannot import anything from it.
        hidden: loaded modules that give way to the program's own.
    """

    def __init__(self, request: dict[str, Any], namespace: dict[str, Any], work: str, hidden: list[str]) -> None:
        self.is_call, self.fn_name = request["kind"] == "call", request["fn_name"]
        self.namespace = namespace
        self.compiled = bytearray()
        """What the first case compiled."""
        self.exit_code = 0
        self.arguments: list[Any] = []
        self.dumps: Any = __import__("json").dumps if self.is_call else None
        self.entering: list[tuple[Any, tuple[Any, ...]]] = [
            (os.closerange, (3, CODE)),
            (os.setpgid, (0, 0)),  # a session of its own would get a scheduling group of its own, which costs milliseconds
            (sys.path.insert, (0, work)),
            (_signal.signal, (_signal.SIGINT, _signal.default_int_handler)),
        ]
        """Looked up here: in a fork each name that is looked up costs pages."""
        self.entering += [(sys.modules.pop, (name,)) for name in hidden]
        if random := sys.modules.get("random"):
            self.entering.append((random.seed, ()))
        if self.is_call:
            self.entering.append((self._take_arguments, ()))
        self.find_ending()

    def find_ending(self) -> None:
        """Look up what `finish` uses, before the program can change it."""
        self.ending = (sys.modules.get, atexit._run_exitfuncs, vars(sys), sys.stdout, sys.stderr, gc.collect, gc.get_objects, os._exit)  # type: ignore[attr-defined]

    def enter(self) -> None:
        """Turn this fork of the init into a process that is ready to run the program."""
        for function, arguments in self.entering:
            function(*arguments)

    def _take_arguments(self) -> None:
        self.arguments = marshal.loads(wire.read_all(ARGUMENTS))
        os.close(ARGUMENTS)

    def take_code(self) -> CodeType:
        """Return what the first case compiled; in the first case, compile the program.

        The seal, set before any of it runs, says that it compiled and keeps the code as it is.
        """
        if self.compiled:
            return marshal.loads(self.compiled)  # type: ignore[no-any-return]
        path = self.namespace["__file__"]
        try:
            fd = os.open(path, os.O_RDONLY)
            source = wire.read_all(fd)
            os.close(fd)
            code = compile(source, path, "exec", dont_inherit=True)
        except BaseException as error:
            self.failed(error)
            self.finish()
        rest = memoryview(marshal.dumps(code))
        while rest:
            rest = rest[os.write(CODE, rest) :]
        fcntl.fcntl(CODE, fcntl.F_ADD_SEALS, SEALS)
        os.close(CODE)
        return code  # type: ignore[no-any-return]

    def call(self) -> None:
        """For a call row: call the function that the row names and send its value out."""
        if not self.is_call:
            return
        value = _find(self.namespace, self.fn_name)(*self.arguments)
        sys.set_int_max_str_digits(0)
        try:
            text = self.dumps(value, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            text = f"!{error}"
        with open(RESULT, "wb") as result:
            result.write(text.encode("utf-8", "surrogatepass"))

    def failed(self, error: BaseException) -> None:
        """Report what escaped the program and set the exit code, as an interpreter would."""
        if isinstance(error, SystemExit):
            if error.code is None or isinstance(error.code, int):
                self.exit_code = (error.code or 0) & 0xFF
                return
            print(error.code, file=sys.stderr)
        else:
            trace = error.__traceback__
            error.__traceback__ = trace and trace.tb_next  # without our own frame
            sys.excepthook(type(error), error, error.__traceback__)
        self.exit_code = 1

    def finish(self) -> NoReturn:
        """End as an interpreter ends: wait for threads, run exit handlers, drop the program's objects, flush."""
        loaded, run_exit_functions, system, stdout, stderr, collect, objects, leave = self.ending
        try:
            if threading := loaded("threading"):
                threading._shutdown()
            run_exit_functions()
            code = _flush(system.get("stdout"), self.exit_code)
            _clear(self.namespace)
            collect(2 if objects(2) else 1)  # a full collection also empties the interpreter's own stores, which costs many pages
            leave(_flush(stdout, _flush(stderr, code)))
        except BaseException as error:
            self.failed(error)
        leave(_flush(stdout, self.exit_code or 1))


def _flush(stream: Any, code: int) -> int:
    """Flush; a failure turns exit code 0 into 120, as in an interpreter."""
    try:
        if stream is not None and not stream.closed:
            stream.flush()
    except BaseException:
        return code or 120
    return code


def _clear(namespace: dict[str, Any]) -> None:
    """Drop a module's objects in the interpreter's order, so that open files are flushed and finalizers run."""
    for name in list(namespace):
        if name[:1] == "_" and name[1:2] != "_":
            namespace[name] = None
    for name in list(namespace):
        if name != "__builtins__":
            namespace[name] = None


def _find(namespace: dict[str, Any], name: str) -> Any:
    """Return the function `name`, or that method of class Solution."""
    if callable(function := namespace.get(name)):
        return function
    if isinstance(solution := namespace.get("Solution"), type) and hasattr(solution, name):
        return getattr(solution(), name)
    raise NameError(f"solution.py defines no function {name!r}")


def _plain(value: Any) -> Any:
    """Turn numeric arrays and scalars into plain data."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"it holds a {type(value).__name__}")
