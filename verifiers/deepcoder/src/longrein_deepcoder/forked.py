"""The grader's side of the fork server: start it, hand it programs, run cases, read what they printed."""

from __future__ import annotations

import fcntl
import logging
import marshal
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from attrs import asdict, frozen

from longrein.errors import SandboxError
from longrein_deepcoder.forkserver import lr_wire as wire
from longrein_deepcoder.forkserver.lr_pack import BOX, imported_ahead, pack
from longrein_deepcoder.forkserver.lr_wire import ENDINGS, REPLY

log = logging.getLogger(__name__)
MAIN = Path(__file__).parent / "forkserver" / "lr_main.py"
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/box/tmp",
    "TMPDIR": "/box/tmp",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
IDLE_WORKERS = 4 + 2 * (os.cpu_count() or 1)
"""Kept for programs that import what a former one imported. A core takes turns with two."""
STARTUP = {"LD_BIND_NOW": "1"}
"""For the server only: what the linker would look up later, every fork would look up again."""


@frozen
class Limits:
    """Limits of one case. CPU time decides; wall time only guards against programs that sleep."""

    cpu_s: float
    wall_s: float
    memory_mb: int
    output_kb: int
    disk_mb: int
    max_processes: int


@frozen
class Run:
    """What one case left behind, read when all its processes were dead."""

    exit_code: int
    """Negative: killed by that signal."""
    ended_by: str
    """"cpu", "wall" or "memory" when a limit ended it, else empty."""
    compiled: bool
    stdout: bytes
    stderr: bytes
    result: bytes | None
    """The serialized value of a call, None for programs that read standard input."""
    cpu_s: float
    wall_s: float
    memory_mb: float


@frozen(eq=False)
class Worker:
    """A fork of the server that makes boxes, one after the other, for programs that import the same."""

    sock: socket.socket
    ahead: list[str]
    folder: str


class ForkServer:
    """A warm interpreter in its own process and, where the system allows it, in its own namespaces.

    Safe to use from several threads. Everything it started ends with it, and with this process.

    Args:
        python: the interpreter that runs the programs.
        isolation: "namespaces", "processes", or "auto" for the first that works.
        limits: of each case.

    Raises:
        SandboxError: the server cannot be started.
    """

    def __init__(self, python: Path, isolation: Literal["auto", "namespaces", "processes"], limits: Limits) -> None:
        self._lock = threading.Lock()
        self._limits = limits
        self.python_version = ""
        self.isolation = ""
        self._folder = Path(tempfile.mkdtemp(prefix="longrein-grade-"))
        tried = ["namespaces", "processes"] if isolation == "auto" else [isolation]
        problems = []
        for name in tried:
            try:
                self._start(python, name)
                break
            except SandboxError as error:
                problems.append(str(error))
        else:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise SandboxError("; ".join(problems))
        self._idle: deque[Worker] = deque()
        if problems:
            log.warning(
                "%s; programs are graded without namespaces, where the clean-up holds against mistakes, not against attacks", problems[0]
            )
        self.close = weakref.finalize(self, _close, self._process, self._sock, self._folder, self._idle)
        self._idle.append(self._order([]))

    def _start(self, python: Path, isolation: str) -> None:
        root = self._folder / "root"
        root.mkdir(exist_ok=True)
        settings = {
            "boxed": isolation == "namespaces",
            "prefixes": prefixes(python),
            "root": str(root),
            "folder": str(self._folder),
            "limits": asdict(self._limits),
        }
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        log = os.memfd_create("longrein-forkserver-log")
        with theirs:
            process = subprocess.Popen(
                [str(python), "-sBP", str(MAIN), str(theirs.fileno()), marshal.dumps(settings, 2).hex()],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=ENVIRONMENT | STARTUP,
                cwd="/",
                process_group=0,
            )
        hello, _ = wire.receive(ours)
        text = wire.read_all(log).decode(errors="replace").strip()
        os.close(log)
        if not hello:
            ours.close()
            process.wait()
            raise SandboxError(f"the grader's process ({isolation}) did not start: {text.splitlines()[-1] if text else process.returncode}")
        self._process, self._sock = process, ours
        if isolation == "namespaces":
            shutil.rmtree(self._folder)
        self.isolation, self.python_version = isolation, hello.decode()

    @contextmanager
    def program(self, files: Mapping[str, bytes], *, kind: str, fn_name: str | None) -> Iterator[Program]:
        """Give a program its box; everything in it ends with the context.

        Args:
            files: path below the working folder to content; holds solution.py.
        """
        worker = self._take(imported_ahead(files, kind=kind))
        control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        fds = []
        try:
            fds.append(memory_file(pack(files, kind=kind, fn_name=fn_name, folder=worker.folder)))
            fds.append(os.memfd_create("code", os.MFD_ALLOW_SEALING))
            try:
                wire.send(worker.sock, b"program", (theirs.fileno(), *fds))
            except OSError as error:
                raise SandboxError(f"the program's worker is gone: {error}") from error
            theirs.close()
            yield Program(control, fds[1], is_call=kind == "call")
        except BaseException as error:
            worker.sock.close()
            if isinstance(error, SandboxError):
                with self._lock:
                    _close_all(self._idle)  # what befell this worker may have befallen them
            raise
        finally:
            control.close()
            theirs.close()
            for fd in fds:
                os.close(fd)
        self._give_back(worker)

    def _take(self, ahead: list[str]) -> Worker:
        """Return a worker that has imported exactly `ahead`; when one is used again, the next is being made by then."""
        with self._lock:
            same = [worker for worker in self._idle if worker.ahead == ahead]
            try:
                if not same:
                    return self._order(ahead)
                if len(same) == 1:
                    self._idle.append(self._order(ahead))
            except OSError as error:
                raise SandboxError(f"the grader's process is gone: {error}") from error
            self._idle.remove(same[0])
            return same[0]

    def _give_back(self, worker: Worker) -> None:
        """Keep a worker for a next program, and end the one that has waited longest if there are too many."""
        with self._lock:
            self._idle.append(worker)
            if len(self._idle) > IDLE_WORKERS:
                self._idle.popleft().sock.close()

    def _order(self, ahead: list[str]) -> Worker:
        folder = tempfile.mkdtemp(dir=self._folder) if self.isolation == "processes" else BOX
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            wire.send(self._sock, marshal.dumps((ahead, folder), 2), (theirs.fileno(),))
        return Worker(ours, ahead, folder)

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """False once the server's process has ended."""
        return self.close.alive and self._process.poll() is None

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()


def _close(process: subprocess.Popen[bytes], sock: socket.socket, folder: Path, idle: deque[Worker]) -> None:
    sock.close()
    _close_all(idle)
    with suppress(subprocess.TimeoutExpired):
        process.wait(5)
    if process.poll() is None:
        process.kill()
        process.wait()
    shutil.rmtree(folder, ignore_errors=True)


def _close_all(workers: deque[Worker]) -> None:
    while workers:
        workers.popleft().sock.close()


class Program:
    """A program in its box; `run` runs one case after the other."""

    def __init__(self, control: socket.socket, code: int, *, is_call: bool) -> None:
        self._control, self._code, self._is_call = control, code, is_call

    def run(self, inputs: Iterable[Any]) -> Iterator[Run]:
        """Run cases and yield what each left behind, in order.

        The next case is handed over while one runs, so that its start does not wait for the judgement of the one before.

        Args:
            inputs: for each case what the program reads (bytes), or for a call the list of arguments (plain data).

        Raises:
            SandboxError: trouble of the grader's own; says nothing about the program.
        """
        ahead: deque[list[int]] = deque()
        try:
            for given in inputs:
                ahead.append(self._send(given))
                if len(ahead) > 1:
                    yield self._receive(ahead)
            while ahead:
                yield self._receive(ahead)
        except OSError as error:
            raise SandboxError(f"the program's init cannot be reached: {error}") from error
        finally:
            for fd in chain.from_iterable(ahead):
                os.close(fd)

    def _send(self, given: Any) -> list[int]:
        fds = [memory_file(b"" if self._is_call else given), os.memfd_create("stdout"), os.memfd_create("stderr")]
        try:
            if self._is_call:
                fds += [memory_file(marshal.dumps(given, 2)), os.memfd_create("result")]
            wire.send(self._control, b"case", tuple(fds))
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return fds

    def _receive(self, ahead: deque[list[int]]) -> Run:
        message, _ = wire.receive(self._control)
        if not message or message.startswith(b"trouble"):
            raise SandboxError(message.decode(errors="replace") or "the program's init ended unexpectedly")
        exit_code, ended_by, cpu_s, wall_s, memory_mb = REPLY.unpack(message)
        fds = ahead.popleft()
        try:
            return Run(
                exit_code=exit_code,
                ended_by=ENDINGS[ended_by],
                compiled=bool(fcntl.fcntl(self._code, fcntl.F_GET_SEALS)),
                stdout=wire.read_all(fds[1]),
                stderr=wire.read_all(fds[2]),
                result=wire.read_all(fds[4]) if self._is_call else None,
                cpu_s=cpu_s,
                wall_s=wall_s,
                memory_mb=memory_mb,
            )
        finally:
            for fd in fds:
                os.close(fd)


def memory_file(content: bytes) -> int:
    """Return a descriptor of a file in memory that nobody can change any more, at its beginning."""
    fd = os.memfd_create("input", os.MFD_ALLOW_SEALING)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
    return fd


def prefixes(python: Path) -> list[str]:
    """Return the folders that an interpreter needs besides the system's: its venv and its base prefix."""
    try:
        command = [str(python), "-sP", "-c", "import sys; print(sys.prefix, sys.base_prefix, sep='\\n')"]
        asked = subprocess.run(command, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SandboxError(f"cannot run the interpreter {python}: {error}") from error
    return sorted({path for path in asked.stdout.decode().splitlines() if not f"{path}/".startswith("/usr/")})
