"""The engine's side of a session's process tree: started, watched, ended, collected, removed."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, define, field

from longrein.errors import SandboxError
from longrein.sandbox.base import ProcessResult, RunningSession
from longrein.sandbox.folders import collect
from longrein.sandbox.limits import SandboxLimits

INIT = Path(__file__).with_name("init.py")
START_S = 60.0
"""How long the first process may take until the agent runs."""


@define
class Tree:
    """One process tree headed by `init.py`; its standard input is the lifeline that ends it."""

    process: asyncio.subprocess.Process
    kill_head: bool
    """True when killing the head kills all (bubblewrap); else the head itself has to kill its tree."""
    limits: SandboxLimits
    ended_by: str = "exit"
    last_output: float = field(factory=time.monotonic)

    def stop(self, reason: str) -> None:
        """End the whole tree; the first reason stands."""
        if self.process.returncode is not None:
            return
        if self.ended_by == "exit":
            self.ended_by = reason
        if self.process.stdin is not None:
            self.process.stdin.write(b"stop")
            self.process.stdin.close()
        if self.kill_head:
            self.process.kill()

    async def tail(self, stream: asyncio.StreamReader) -> bytes:
        """Read `stream` to its end, keeping the last `output_kb`."""
        limit, kept = self.limits.output_kb << 10, bytearray()
        while chunk := await stream.read(1 << 16):
            self.last_output = time.monotonic()
            kept += chunk
            if len(kept) > 2 * limit:
                del kept[:-limit]
        return bytes(kept[-limit:])


async def start_tree(
    argv: Sequence[str],
    init: Mapping[str, Any],
    *,
    env: Mapping[str, str],
    limits: SandboxLimits,
    kill_head: bool,
    pass_fds: Sequence[int] = (),
) -> Tree:
    """Start `argv` + [init.py's plan] and wait until the agent runs.

    Args:
        argv: what starts `init.py`, without its argument.
        init: the plan for `init.py`; limits and `ready_fd` are added.
        env: the whole environment.
        limits: limits of the session.
        kill_head: see `Tree`.
        pass_fds: descriptors that the tree inherits.

    Raises:
        SandboxError: the tree could not be started; carries what it said.
    """
    read_end, write_end = os.pipe()
    try:
        plan = json.dumps({**init, **asdict(limits), "ready_fd": write_end})
        process = await asyncio.create_subprocess_exec(
            *argv,
            plan,
            env=env,
            pass_fds=(write_end, *pass_fds),
            cwd="/",
            start_new_session=True,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        os.close(read_end)
        raise SandboxError(f"cannot start {argv[0]}: {error}") from error
    finally:
        os.close(write_end)
    tree = Tree(process, kill_head, limits)
    try:
        said = await asyncio.wait_for(_read_line(read_end), START_S)
    except (TimeoutError, asyncio.CancelledError):
        tree.stop("start")
        await process.wait()
        raise
    if said != b"ready\n":
        tree.stop("start")
        assert process.stderr is not None
        complaint = (await process.stderr.read()).decode(errors="replace").strip()
        await process.wait()
        raise SandboxError(said.decode(errors="replace").strip() or f"the sandbox could not be made: {complaint or 'no reason given'}")
    return tree


async def _read_line(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0))
    try:
        return await reader.readline()
    finally:
        transport.close()


def running(tree: Tree, *, workspace: Path, record: Mapping[str, Any], clean_up: Callable[[], None]) -> RunningSession:
    """Return the engine's handles on a started tree. The tree is followed to its end whether or not someone waits."""
    task = asyncio.get_running_loop().create_task(_follow(tree, workspace, dict(record), clean_up))

    async def wait() -> ProcessResult:
        return await asyncio.shield(task)

    return RunningSession(stop=tree.stop, wait=wait, last_output=lambda: tree.last_output)


async def _follow(tree: Tree, workspace: Path, record: dict[str, Any], clean_up: Callable[[], None]) -> ProcessResult:
    process = tree.process
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        stdout, stderr, _ = await asyncio.gather(tree.tail(process.stdout), tree.tail(process.stderr), process.wait())
        files, skipped = await asyncio.to_thread(collect, workspace, tree.limits.workspace_mb)
    finally:
        if process.stdin is not None:
            process.stdin.close()
        await asyncio.to_thread(clean_up)
    record |= {"limits": asdict(tree.limits), "files_left_out": skipped}
    code = process.returncode if tree.ended_by == "exit" else None
    return ProcessResult(code, tree.ended_by, stdout, stderr, files, record)
