"""A vLLM server that ends with its parent and says when it answers."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from attrs import evolve

from longrein.capture.endpoint import PolicyEndpoint
from longrein.errors import ServeError
from longrein.serve.generations import WEIGHTS_LINK, new_folder, newest, stored_bytes
from longrein.serve.process import how_ended
from longrein.serve.vllm.command import VllmOptions, arguments, environment
from longrein.serve.vllm.control import VllmControl
from longrein.serve.vllm.toolchain import find_python, lend_plugin

STOP_TIMEOUT_S = 3.0
PR_SET_PDEATHSIG = 1


def keep(options: VllmOptions, *, runtime: Path | None = None, weights: Path | None = None, exit_with_stdin: bool = False) -> int:
    """Run vLLM until it ends, a signal comes or, with `exit_with_stdin`, standard input ends; prints one JSON line when ready.

    Args:
        options: the server.
        runtime: the run's private folder, for a server that takes whole weights from files; None for one whose trainer is another's.
        weights: the weights folder of a server that died, to go on from its newest file; None makes a new one.
        exit_with_stdin: the parent holds standard input; its death ends the server.

    Returns:
        vLLM's exit code, negative for a signal; 0 when it was asked to end.

    Raises:
        ServeError: vLLM ended before it answered; its output says why.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    process = subprocess.Popen(
        arguments(options),
        env=environment(options),
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        process_group=0,  # its engine and workers are of the same, so that all can be ended
        preexec_fn=_die_with_parent,
    )
    if exit_with_stdin:
        threading.Thread(target=_watch_stdin, args=(stop,), daemon=True).start()
    link = runtime / WEIGHTS_LINK if runtime is not None and options.adapters is None else None
    folder = None
    try:
        control = VllmControl(PolicyEndpoint(_url(options), options.name, uds=options.socket))
        if not _answers(control, process, stop):
            return 0
        if link is not None:
            folder = weights or new_folder(stored_bytes(options.model), fallback=link.parent)
            link.unlink(missing_ok=True)
            link.symlink_to(folder)
            control.use(folder)
            if (found := newest(folder)) is not None:
                control.load(*found)
        for adapter in sorted(options.adapters.folder.glob("*/")) if options.adapters else ():  # of a server that died
            control.add_adapter(adapter)
        length = next(model["max_model_len"] for model in control.models() if model["id"] == options.name)
        ready = {"url": _url(options), "socket": options.socket and str(options.socket), "model": options.name, "max_model_len": length}
        print(json.dumps({**ready, "weights": folder and str(folder)}), flush=True)
        while process.poll() is None and not stop.wait(0.2):
            pass
        return 0 if stop.is_set() else process.wait()
    finally:
        asked = stop.is_set()
        _end(process)
        if options.socket is not None:
            options.socket.unlink(missing_ok=True)
        if link is not None and asked:  # else the next server goes on from the weights
            link.unlink(missing_ok=True)
            shutil.rmtree(folder or link, ignore_errors=True)


def _url(options: VllmOptions) -> str:
    return "http://policy/v1" if options.socket else f"http://{options.host}:{options.port}/v1"


def _answers(control: VllmControl, process: subprocess.Popen[bytes], stop: threading.Event) -> bool:
    """Wait until vLLM answers; False when it was asked to end before."""
    while not stop.wait(0.3):
        if (code := process.poll()) is not None:
            raise ServeError(f"vLLM {how_ended(code)} before it answered")
        if control.healthy():
            return True
    return False


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch_stdin(stop: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    stop.set()


def _end(process: subprocess.Popen[bytes]) -> None:
    """End vLLM and what it started."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(STOP_TIMEOUT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def serve_vllm(model: Path, *, host: str, port: int, max_model_len: int | None, dtype: str, args: Sequence[str]) -> int:
    """Serve a model by TCP until interrupted; the exit code.

    Raises:
        MissingError: vLLM or longrein-vllm is not installed.
    """
    python, cpu = find_python(None)
    with tempfile.TemporaryDirectory(prefix="longrein-", ignore_cleanup_errors=True) as folder:
        plugins = lend_plugin(Path(folder, "plugins"))
        options = VllmOptions(python, model, model.resolve().name, cpu, plugins, Path(folder), host=host, port=port)
        return keep(evolve(options, dtype=dtype, max_model_len=max_model_len, args=tuple(args)))
