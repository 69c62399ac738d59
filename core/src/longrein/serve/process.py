"""A policy server as a child process, and the client of its control socket. Loads none of what the server needs."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from longrein.capture.endpoint import PolicyEndpoint
from longrein.errors import ServeError

START_TIMEOUT_S = 300.0
STOP_TIMEOUT_S = 5.0


class Control(Protocol):
    """How a trainer swaps the weights of a policy server."""

    timeout_s: float

    def use(self, folder: Path) -> None: ...

    def pause(self, mode: str = "wait") -> None: ...

    def load(self, weights: Path, version: int) -> None: ...

    def resume(self) -> None: ...


class ControlClient:
    """Calls the control socket of a policy server; every call blocks until it is done.

    Args:
        path: the socket.
        timeout_s: how long a call may take; a pause waits for the replies under way.
    """

    def __init__(self, path: Path, *, timeout_s: float = 120.0) -> None:
        self.path, self.timeout_s = path, timeout_s

    def use(self, folder: Path) -> None:
        """Nothing to say: the embedded server made the folder itself."""

    def pause(self, mode: str = "wait") -> None:
        """Let the replies under way end and start no other."""
        self._call("pause", mode=mode)

    def load(self, weights: Path, version: int) -> None:
        """Swap the weights between two replies.

        Raises:
            ServeError: the file is outside the server's weights folder or does not fit; the old weights stay.
        """
        self._call("load", path=str(weights), version=version)

    def resume(self) -> None:
        """Answer the requests that have queued up, and new ones."""
        self._call("resume")

    def status(self) -> dict[str, Any]:
        """Return version, paused, running, queued, counters, and the weights folder."""
        status: dict[str, Any] = self._call("status")
        return status

    def _call(self, call: str, **arguments: Any) -> Any:
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(self.timeout_s)
                connection.connect(str(self.path))
                connection.sendall(json.dumps({"call": call, **arguments}).encode() + b"\n")
                with connection.makefile("rb") as replies:
                    line = replies.readline()
        except TimeoutError as error:
            raise ServeError(f"the policy server did not finish {call!r} within {self.timeout_s:g} s") from error
        except OSError as error:
            raise ServeError(f"the policy server does not answer on {self.path}: {error.strerror}; it has probably ended") from error
        if not line:
            raise ServeError(f"the policy server ended during {call!r}")
        reply = json.loads(line)
        if "error" in reply:
            raise ServeError(reply["error"])
        return reply["ok"]


class ServerProcess:
    """A running policy server; it ends with this process, however that dies.

    Args:
        command: prints a line of JSON when it serves (url, socket, model, max_model_len, weights), ends with its standard input,
            and with `--weights FOLDER` goes on from the weights of one that died.
        log: file for its output, appended to.
        control: pauses it and swaps its weights.
        start_timeout_s: how long it may take to start.

    Raises:
        ServeError: it did not start; the message has the end of its log.
    """

    def __init__(self, command: Sequence[str], log: Path, control: Control, *, start_timeout_s: float = START_TIMEOUT_S) -> None:
        self._command, self._log, self.control, self._start_timeout_s = command, log, control, start_timeout_s
        self._lock, self._stopped = threading.Lock(), False
        ready = self._spawn(command)
        self.weights = Path(ready["weights"]) if ready["weights"] else None
        """The only folder that the server loads weights from; it removes it when it ends. None for one that takes adapters instead."""
        uds = Path(ready["socket"]) if ready["socket"] else None
        self.endpoint = PolicyEndpoint(ready["url"], ready["model"], uds=uds, max_model_len=ready["max_model_len"], kept=True)

    @classmethod
    def start(
        cls,
        model_dir: Path,
        *,
        runtime: Path,
        log: Path,
        name: str | None = None,
        dtype: str = "float32",
        max_model_len: int | None = None,
        threads: int = 1,
    ) -> ServerProcess:
        """Start the embedded server and wait until it answers.

        Args:
            model_dir: a transformers model with its tokenizer.
            runtime: a short folder of this run, for the two sockets.
            log: file for the server's output, appended to.
            name: served name of the model; default its folder's.
            dtype: of the weights served.
            max_model_len: tokens of prompt and reply together; default what the model was made for.
            threads: CPU threads of one forward pass.

        Raises:
            ServeError: it did not start; the message has the end of its log.
        """
        control = runtime / "control.sock"
        command = [
            *(sys.executable, "-m", "longrein.serve", "--model", str(model_dir), "--socket", str(runtime / "policy.sock")),
            *("--control", str(control), "--dtype", dtype, "--threads", str(threads), "--exit-with-stdin"),
        ]
        if name is not None:
            command += ["--name", name]
        if max_model_len is not None:
            command += ["--max-model-len", str(max_model_len)]
        return cls(command, log, ControlClient(control))

    def _spawn(self, command: Sequence[str]) -> dict[str, Any]:
        with self._lock, self._log.open("ab") as output:
            if self._stopped:
                raise ServeError("the policy server was stopped")
            process = self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, env=_environment(), start_new_session=True
            )
        try:
            return _ready(process, self._log, self._start_timeout_s)
        except BaseException:
            _end(process)
            raise

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """True while the server runs."""
        return self._process.poll() is None

    def wait(self) -> int | None:
        """Wait until the server ends and return its exit code; None when `stop` ended it."""
        code = self._process.wait()
        return None if self._stopped else code

    def restart(self) -> None:
        """Start a server that died again, on the same sockets, with the newest weights that it had been given.

        Raises:
            ServeError: it had closed down by itself, so its weights are gone; or it does not start.
        """
        _end(self._process)
        if self.weights is not None and not self.weights.is_dir():
            raise ServeError(f"the policy server ended by itself; the end of {self._log}:\n{tail(self._log)}")
        self._spawn([*self._command, *(("--weights", str(self.weights)) if self.weights else ())])

    def stop(self) -> None:
        """End the server for good; replies under way are cut off. Calling it again changes nothing."""
        with self._lock:
            self._stopped = True
        _end(self._process)
        # Usually gone already; a server that was killed could not remove it.
        if self.weights is not None:
            shutil.rmtree(self.weights, ignore_errors=True)


def _environment() -> Mapping[str, str]:
    # Without offline mode transformers asks the hub about local folders too.
    return {**os.environ, "HF_HUB_OFFLINE": "1"}


def _ready(process: subprocess.Popen[bytes], log: Path, timeout_s: float) -> dict[str, Any]:
    """Wait for the line that the server prints when it listens."""
    assert process.stdout is not None
    deadline = time.monotonic() + timeout_s
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        while time.monotonic() < deadline:
            if not selector.select(timeout=1.0):
                continue
            line = process.stdout.readline()
            if line.startswith(b"{"):
                ready: dict[str, Any] = json.loads(line)
                return ready
            if not line:
                raise ServeError(f"the policy server did not start (exit code {process.wait()}); the end of {log}:\n{tail(log)}")
    raise ServeError(f"the policy server was not ready within {timeout_s:g} s; the end of {log}:\n{tail(log)}")


def how_ended(code: int) -> str:
    """Return in words how a process with exit code `code` ended; negative codes are signals."""
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"


def tail(log: Path, n_lines: int = 15) -> str:
    """Return the last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-n_lines:])


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
