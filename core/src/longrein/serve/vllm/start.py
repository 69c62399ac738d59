"""Start a vLLM server for a run."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from longrein.capture.endpoint import PolicyEndpoint
from longrein.serve.process import ServerProcess
from longrein.serve.vllm.command import Adapters
from longrein.serve.vllm.control import VllmControl
from longrein.serve.vllm.toolchain import find_python

START_TIMEOUT_S = 900.0
"""Compiling a large model's graphs takes minutes."""


def start_vllm(
    model_dir: Path,
    *,
    runtime: Path,
    log: Path,
    name: str | None = None,
    dtype: str = "float32",
    max_model_len: int | None = None,
    python: Path | None = None,
    adapters: Adapters | None = None,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    host: str | None = None,
) -> ServerProcess:
    """Start vLLM and wait until it answers.

    Args:
        model_dir: a transformers model with its tokenizer.
        runtime: a short folder of this run, for the socket.
        log: file for vLLM's output, appended to.
        name: served name of the model; default its folder's.
        dtype: of the weights served.
        max_model_len: tokens of prompt and reply together; default what the model was made for.
        python: an interpreter with vLLM; default what `longrein agents install` made.
        adapters: make room for LoRA adapters. Trainers send them by TCP, so the server listens on a loopback port instead of a socket.
        args: further flags of vLLM.
        env: further variables of its environment.
        host: an address to listen on, on a free port; default a unix socket in `runtime`.

    Raises:
        MissingError: vLLM or longrein-vllm is not installed.
        ServeError: it did not start; the message has the end of its log.
    """
    found, cpu = find_python(python)
    if adapters and host is None:
        host = "127.0.0.1"
    uds = None if host else runtime / "policy.sock"
    port = _free_port(host) if host else 0
    served = name or model_dir.resolve().name
    where = ["--host", host, "--port", str(port)] if host else ["--socket", str(uds)]
    command = [
        *(sys.executable, "-m", "longrein.serve.vllm", "--python", str(found), "--runtime", str(runtime), "--exit-with-stdin"),
        *("--model", str(model_dir), "--name", served, "--dtype", dtype, *where, *(["--cpu"] if cpu else [])),
        *(["--max-model-len", str(max_model_len)] if max_model_len else []),
        *(["--lora", str(adapters.rank), str(adapters.count), str(adapters.folder)] if adapters else []),
        *(f"--arg={value}" for value in args),
        *(f"--env={name}={value}" for name, value in (env or {}).items()),
    ]
    url = f"http://{host}:{port}/v1" if host else "http://policy/v1"
    control = VllmControl(PolicyEndpoint(url, served, uds=uds))
    return ServerProcess(command, log, control, start_timeout_s=START_TIMEOUT_S)


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
