"""The engine's side of a session's process tree: started, watched, ended, collected, removed."""

from __future__ import annotations

import asyncio
import json
import os
import socket
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
PLAN: Mapping[str, Any] = {
    "folders": (),
    "in_memory": False,
    "hand_over": (),
    "relay_port": None,
    "relay_socket": None,
    "guard": False,
    "remove": None,
}
"""What `init.py` is told besides program and limits: folders to watch and whether they are in memory, folders to hand to the
engine, the relay, whether to guard itself against signals, and a folder to remove when the engine dies."""
START_S = 60.0
"""How long the first process may take until the agent runs."""
STOP_S = 5.0
"""How long it may take to end its tree when it is told to."""


@define
class Tree:
    """One process tree headed by `init.py`; its standard input is the lifeline that ends it."""

    process: asyncio.subprocess.Process
    limits: SandboxLimits
    folders: tuple[int, ...] = ()
    """Descriptors of the folders that exist in the tree's own memory only."""
    ended_by: str = "exit"
    last_output: float = field(factory=time.monotonic)

    def stop(self, reason: str) -> None:
        """End the whole tree; the first reason stands."""
        if self.process.returncode is not None:
            return
        if self.ended_by == "exit":
            self.ended_by = reason
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(b"stop")
            self.process.stdin.close()
            # The head ends its tree before itself, so that its end is the end of all; it is killed only where it hangs.
            asyncio.get_running_loop().call_later(STOP_S, self._kill)

    def _kill(self) -> None:
        if self.process.returncode is None:
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

    def close(self) -> None:
        """Give up the folders in memory, and with them their content."""
        for descriptor in self.folders:
            os.close(descriptor)
        self.folders = ()


Fill = Callable[[Sequence[Path]], None]


async def start_tree(
    argv: Sequence[str],
    init: Mapping[str, Any],
    *,
    env: Mapping[str, str],
    limits: SandboxLimits,
    fill: Fill | None = None,
    pass_fds: Sequence[int] = (),
    ready_on_stderr: bool = False,
) -> Tree:
    """Start `argv` + [init.py's plan] and wait until the agent runs.

    Args:
        argv: what starts `init.py`, without its argument.
        init: what differs from PLAN; limits and `engine_fd` are added.
        env: the whole environment.
        limits: limits of the session.
        fill: places files in the folders that `init["hand_over"]` names, given as paths of this process; before the agent runs.
        pass_fds: descriptors that the tree inherits.
        ready_on_stderr: True where descriptors do not get through: the word that the agent runs is the first line on standard error.

    Raises:
        SandboxError: the tree could not be started; carries what it said.
    """
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours:
        try:
            plan = json.dumps({**PLAN, **init, **asdict(limits), "engine_fd": 2 if ready_on_stderr else theirs.fileno()})
            process = await asyncio.create_subprocess_exec(
                *argv,
                plan,
                env=env,
                pass_fds=(theirs.fileno(), *pass_fds),
                cwd="/",
                start_new_session=True,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise SandboxError(f"cannot start {argv[0]}: {error}") from error
        finally:
            theirs.close()
        tree = Tree(process, limits)
        try:
            assert process.stderr is not None
            greeting = process.stderr.readline() if ready_on_stderr else _greet(tree, ours, fill)
            said = await asyncio.wait_for(greeting, START_S)
        except BaseException:
            ours.close()  # the first process may be waiting for a word on it
            await _give_up(tree)
            raise
    if said != b"ready\n":
        complaint = f"{said.decode(errors='replace')}{await _give_up(tree)}".strip()
        raise SandboxError(complaint or "the sandbox could not be made, and gave no reason")
    return tree


async def _give_up(tree: Tree) -> str:
    """End a tree that did not come up, and return what it said on standard error."""
    tree.stop("start")
    assert tree.process.stderr is not None
    complaint = (await tree.process.stderr.read()).decode(errors="replace").strip()
    await tree.process.wait()
    tree.close()
    return complaint


async def _greet(tree: Tree, channel: socket.socket, fill: Fill | None) -> bytes:
    said, tree.folders = await _receive(channel)
    if said != b"folders\n" or fill is None:
        return said
    await asyncio.to_thread(fill, [Path(f"/proc/self/fd/{descriptor}") for descriptor in tree.folders])
    channel.send(b"g")
    return (await _receive(channel))[0]


async def _receive(channel: socket.socket) -> tuple[bytes, tuple[int, ...]]:
    """Return the next message with its descriptors; empty when the other side has ended."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(channel, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(channel)
    try:
        said, descriptors, _, _ = socket.recv_fds(channel, 4096, 4, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return b"", ()
    return said, tuple(descriptors)


def running(tree: Tree, *, workspace: Path, record: Mapping[str, Any], clean_up: Callable[[], None]) -> RunningSession:
    """Return the engine's handles on a started tree. The tree is followed to its end whether or not someone waits.

    Args:
        tree: what `start_tree` returned.
        workspace: where the final files are.
        record: what the rollout's record says of the sandbox.
        clean_up: removes what the backend made, once every process is dead and the files are read.
    """
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
        tree.close()
        await asyncio.to_thread(clean_up)
    record |= {"files_left_out": skipped}
    if tree.ended_by == "exit" and (process.returncode or 0) < 0:  # the head's own end: an agent's signal comes as 128 + n
        tree.ended_by = "killed"
    code = process.returncode if tree.ended_by == "exit" else None
    return ProcessResult(code, tree.ended_by, stdout, stderr, files, record)
