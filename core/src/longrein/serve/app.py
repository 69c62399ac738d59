"""One policy server from start to end: model, scheduler, routes, control socket."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from attrs import frozen

from longrein.capture.listen import serving, unix_listener
from longrein.errors import ServeError


@frozen
class ServeOptions:
    """What `python -m longrein.serve` takes."""

    model: Path
    """A folder with a causal language model and its tokenizer, as transformers saves them."""
    name: str | None = None
    """Served name; default the folder's."""
    socket: Path | None = None
    """Unix socket to serve on; host and port are used without it."""
    host: str = "127.0.0.1"
    port: int = 8000
    """0 takes a free one."""
    control: Path | None = None
    """Unix socket for pause, load, resume and status; none without it."""
    weights: Path | None = None
    """The weights folder of a server that died, to go on from its newest file; None makes a new folder."""
    dtype: str = "float32"
    max_model_len: int | None = None
    """Tokens of prompt and reply together; default what the model was made for."""
    exit_with_stdin: bool = False
    """End when standard input does: the parent has died."""
    threads: int = 1
    """CPU threads of one forward pass."""


def serve(options: ServeOptions) -> None:
    """Serve until a signal or, with `exit_with_stdin`, the end of standard input; prints one JSON line when ready.

    Raises:
        ServeError: the model cannot be loaded or served, or a socket cannot be bound.
    """
    asyncio.run(_serve(options))


async def _serve(options: ServeOptions) -> None:
    # Before the imports, which take seconds.
    if not (options.model / "config.json").is_file():
        raise ServeError(f"{options.model} is not a model folder: it has no config.json")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if options.exit_with_stdin:
        threading.Thread(target=_watch_stdin, args=(loop, stop), daemon=True).start()
    from longrein.serve.api import Api
    from longrein.serve.loading import load_policy
    from longrein.serve.scheduler import Scheduler

    policy = load_policy(options.model, dtype=options.dtype, max_model_len=options.max_model_len, threads=options.threads)
    scheduler = Scheduler(policy.model, policy.eos_ids)
    async with AsyncExitStack() as stack:
        stack.callback(scheduler.close)
        weights = await _serve_control(stack, scheduler, options, policy.n_bytes) if options.control else None
        listener, url = _listener(options)
        name = options.name or policy.name
        api = Api(scheduler, policy.template, model=name, max_model_len=policy.max_model_len)
        await stack.enter_async_context(serving(api.app(), [listener]))
        if options.socket is not None:
            stack.callback(options.socket.unlink, missing_ok=True)
        ready = {"url": url, "socket": options.socket and str(options.socket), "model": name, "max_model_len": policy.max_model_len}
        print(json.dumps({**ready, "weights": weights and str(weights)}), flush=True)
        await stop.wait()


def _watch_stdin(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # Not sys.stdin: its lock, held by a thread that never returns, makes the interpreter abort at exit.
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(stop.set)


def _listener(options: ServeOptions) -> tuple[socket.socket, str]:
    if options.socket is not None:
        return unix_listener(options.socket), "http://policy/v1"
    try:
        listener = socket.create_server((options.host, options.port))
    except OSError as error:
        raise ServeError(f"cannot listen on {options.host}:{options.port}: {error.strerror}") from error
    return listener, f"http://{options.host}:{listener.getsockname()[1]}/v1"


async def _serve_control(stack: AsyncExitStack, scheduler: Any, options: ServeOptions, n_bytes: int) -> Path:
    from longrein.serve.control import ControlServer
    from longrein.serve.generations import WEIGHTS_LINK, new_folder, newest

    path = options.control
    assert path is not None
    # The server makes the folder it loads from and removes it: it is the last to live when its parent is killed.
    weights = options.weights or new_folder(n_bytes, fallback=path.parent)
    stack.callback(shutil.rmtree, weights, ignore_errors=True)
    link = path.with_name(WEIGHTS_LINK)
    link.unlink(missing_ok=True)
    link.symlink_to(weights)
    stack.callback(link.unlink, missing_ok=True)
    if (found := newest(weights)) is not None:
        await asyncio.wrap_future(scheduler.load(*found))
    control = ControlServer(scheduler, weights)
    server = await asyncio.start_unix_server(control.answer, sock=unix_listener(path))
    stack.callback(path.unlink, missing_ok=True)
    stack.callback(server.close)
    return weights
