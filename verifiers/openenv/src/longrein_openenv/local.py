"""A server of our own: started with the first session, ended with the run, or with the engine however that ends."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import threading
from typing import IO

from longrein.errors import EnvironmentFailed

START_S = 180.0
"""How long a server may take to start."""


class LocalServer:
    """Runs an ASGI app in a process of its own, on a free loopback port.

    Args:
        target: the app, as `longrein_openenv.serve` takes it.
    """

    def __init__(self, target: str) -> None:
        self._target, self._lock = target, threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._port = 0

    def url(self) -> str:
        """Return where the server answers; the first call starts it and waits for it.

        Raises:
            EnvironmentFailed: it does not start, or has ended.
        """
        with self._lock:
            if self._process is None:
                self._start()
            assert self._process is not None
            if (code := self._process.poll()) is not None:
                raise EnvironmentFailed(f"the environment server {self._target!r} ended with exit code {code}: {self._tail()}")
            return f"http://127.0.0.1:{self._port}"

    def _start(self) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - kept as long as the server
        ready, started = os.pipe()
        from longrein.capture.listen import loopback_listener  # loads uvicorn

        with loopback_listener() as listener:
            listener.listen(64)
            self._port = listener.getsockname()[1]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "longrein_openenv.serve", self._target, str(listener.fileno()), str(started)],
                stdin=subprocess.PIPE,
                stdout=self._said,
                stderr=self._said,
                pass_fds=(listener.fileno(), started),
                start_new_session=True,
            )
        os.close(started)
        with os.fdopen(ready, "rb") as pipe:
            told, _, _ = select.select([pipe], [], [], START_S)
            if not told:
                self._process.kill()
            if not told or not pipe.readline():
                self._process.wait()

    def _tail(self) -> str:
        assert self._said is not None
        self._said.seek(max(0, self._said.seek(0, os.SEEK_END) - 2000))
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1][:500] if lines else "it said nothing"

    def close(self) -> None:
        """End the server."""
        with self._lock:
            if self._process is None:
                return
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            if self._said:
                self._said.close()
            self._process = None
