"""One case, in its own process: set limits, run the program as an interpreter would, end as an interpreter would."""

# A case costs a millisecond; pathlib would be a tenth of it.
# ruff: noqa: PTH123, PTH208

import atexit
import builtins
import fcntl
import gc
import json
import marshal
import os
import resource
import signal
import sys
import threading
import types
from typing import Any, NoReturn

import lr_libc as libc
import lr_wire as wire

MB = 1 << 20
STACK = 120 * MB
"""The kernel leaves at least 128 MB for the stack of a process started with a smaller limit."""
ADDRESS_SPACE_EXTRA = 4096 * MB
"""Reserved but untouched memory (thread stacks, numeric libraries) does not count; what is touched is watched by the init."""
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

_warm: list[str] = []
_teardown = (atexit._run_exitfuncs, threading._shutdown, gc.collect, os._exit, sys.stdout, sys.stderr)  # type: ignore[attr-defined]


def hide_server(ours: tuple[str, ...], startup: frozenset[str]) -> None:
    """Take our modules and folder out of the programs' sight; remember which modules a plain interpreter would not have."""
    for name in ours:
        sys.modules.pop(name, None)
    sys.path[:] = sys.path[1:]
    _warm.extend(name for name in sys.modules if name not in startup)


class Case:
    """What one process is to run.

    Args:
        request: the program's kind, fn_name and limits.
        fds: standard input, output and error; for a call also the arguments (in) and the result (out).
        code: a memory file that holds the compiled program, once sealed.
    """

    def __init__(self, request: dict[str, Any], fds: list[int], *, code: int, work: str, tmp: str, boxed: bool) -> None:
        self.request, self.fds, self.code_fd, self.work, self.tmp, self.boxed = request, fds, code, work, tmp, boxed
        self.is_call = request["kind"] == "call"
        self.exit_code = 0
        self.namespace: dict[str, Any] = {}
        self.code: Any = None
        self.arguments: list[Any] = []
        self.result_fd = -1

    def call(self) -> None:
        """For a call row: call the function that the row names and send its value out."""
        if not self.is_call:
            return
        value = _find(self.namespace, self.request["fn_name"])(*self.arguments)
        sys.set_int_max_str_digits(0)
        try:
            text = json.dumps(value, default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            text = f"!{error}"
        with open(self.result_fd, "wb") as result:
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
            sys.excepthook(type(error), error, trace and trace.tb_next)
        self.exit_code = 1

    def finish(self) -> NoReturn:
        """End as an interpreter ends: wait for threads, run exit handlers, drop the program's objects, flush."""
        run_exit_handlers, wait_for_threads, collect, leave, stdout, stderr = _teardown
        try:
            wait_for_threads()
            run_exit_handlers()
            code = _flush(sys.stdout, self.exit_code)
            _clear(self.namespace)
            collect()
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
    for private in (True, False):
        for name in list(namespace):
            if name != "__builtins__" and (name.startswith("_") and not name.startswith("__")) == private:
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
    raise TypeError(f"the returned value holds a {type(value).__name__}, which is not plain data")


def enter(case: Case) -> None:
    """Turn this fork of the init into a process that is ready to execute `case.code`."""
    os.setsid()
    _limit(case.request)
    for number, fd in enumerate(case.fds[:3]):
        os.dup2(fd, number)
    keep = [*case.fds[3:], case.code_fd]
    for number, fd in enumerate(keep, start=200):
        os.dup2(fd, number)
    os.closerange(3, 200)
    os.closerange(200 + len(keep), 1024)
    case.code_fd = 200 + len(keep) - 1
    if case.is_call:
        case.result_fd = 201
        case.arguments = marshal.loads(wire.read_all(200))
        os.close(200)
    os.chdir(case.work)
    os.umask(0o022)
    if case.boxed:
        libc.drop_capabilities()
    libc.prctl(libc.PR_SET_DUMPABLE, 1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _dress(case)
    _compile(case)


def _limit(request: dict[str, Any]) -> None:
    seconds = int(request["cpu_s"]) + 1
    size = request["output_kb"] << 10
    space = request["memory_mb"] * MB + ADDRESS_SPACE_EXTRA
    for which, soft, hard in (
        (resource.RLIMIT_CPU, seconds, seconds + 1), (resource.RLIMIT_FSIZE, size, size), (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_AS, space, space),
        (resource.RLIMIT_NPROC, request["processes"], request["processes"]), (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_MEMLOCK, 0, 0), (resource.RLIMIT_STACK, STACK, STACK),
    ):
        most = resource.getrlimit(which)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(which, (soft, hard))


def _dress(case: Case) -> None:
    """Give the process what `python solution.py` would have: argv, path, main module, no warm module that a file shadows."""
    file = f"{case.work}/solution.py"
    name = "solution" if case.is_call else "__main__"
    module = types.ModuleType(name)
    module.__dict__.update(__file__=file, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = module
    sys.modules[name] = module
    sys.argv[:] = ["solution.py"]
    sys.path.insert(0, case.work)
    local = {entry.partition(".")[0] for entry in os.listdir(case.work)}
    if not local.isdisjoint(name.partition(".")[0] for name in _warm):
        for warm in _warm:
            sys.modules.pop(warm, None)
    case.namespace = module.__dict__


def _compile(case: Case) -> None:
    """Load the compiled program; the first case compiles it and seals it, so that no program can change it."""
    if os.fstat(case.code_fd).st_size == 0:
        file = f"{case.work}/solution.py"
        with open(file, "rb") as source:
            text = source.read()
        try:
            code = compile(text, file, "exec", dont_inherit=True)
        except BaseException as error:
            case.failed(error)
            case.finish()
        with open(case.code_fd, "wb", closefd=False) as compiled:
            compiled.write(marshal.dumps(code))
        fcntl.fcntl(case.code_fd, fcntl.F_ADD_SEALS, SEALS)
    case.code = marshal.loads(wire.read_all(case.code_fd))
    os.close(case.code_fd)
