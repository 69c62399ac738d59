"""The engine's side of a session's process tree: started, watched, ended, collected, removed."""

from __future__ import annotations

import asyncio
import contextlib
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
    "hand_over": (),
    "relay_port": None,
    "relay_socket": None,
    "guard": False,
    "remove": None,
}
"""What `init.py` is told besides program and limits: folders to watch, folders to hand to the engine (those to watch are then in
memory), the relay, whether to guard itself against signals, and a folder to remove when the engine dies."""
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

    async def ended(self) -> tuple[bytes, bytes]:
        """Wait for the end of every process, settle what ended it, and return the tails of both output streams."""
        process = self.process
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdin is not None
        stdout, stderr, code = await asyncio.gather(self.tail(process.stdout), self.tail(process.stderr), process.wait())
        process.stdin.close()
        if self.ended_by == "exit" and code < 0:  # the head's own end: a signal to what runs below it comes as 128 + n
            self.ended_by = "killed"
        return stdout, stderr

    @property
    def exit_code(self) -> int | None:
        """The exit code, once it has ended by itself; else None."""
        return self.process.returncode if self.ended_by == "exit" else None

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
            engine_fd = 2 if ready_on_stderr else theirs.fileno()
            plan = {**PLAN, **init, **asdict(limits), "max_threads": limits.max_threads, "engine_fd": engine_fd}
            starting = asyncio.ensure_future(_spawn(*argv, json.dumps(plan), env=env, pass_fds=(theirs.fileno(), *pass_fds)))
            # Shielded: asyncio's own call, when it is cancelled, may wait for ever for a child that has ended.
            tree = Tree(await asyncio.shield(starting), limits)
        except OSError as error:
            raise SandboxError(f"cannot start {argv[0]}: {error}") from error
        except asyncio.CancelledError:
            ours.close()
            with contextlib.suppress(OSError):
                await _give_up(Tree(await starting, limits))
            raise
        finally:
            theirs.close()
        try:
            assert tree.process.stderr is not None
            greeting = tree.process.stderr.readline() if ready_on_stderr else _greet(tree, ours, fill)
            async with asyncio.timeout(START_S):  # not wait_for, which loses a cancellation that comes with the answer
                said = await greeting
        except BaseException as error:
            ours.close()  # the first process may be waiting for a word on it
            await _give_up(tree)
            if isinstance(error, TimeoutError):
                raise SandboxError(f"{argv[0]} did not start the session within {START_S:g} s") from error
            raise
    if said != b"ready\n":
        complaint = f"{said.decode(errors='replace')}{await _give_up(tree)}".strip()
        raise SandboxError(complaint or "the sandbox could not be made, and gave no reason")
    return tree


async def _spawn(*argv: str, env: Mapping[str, str], pass_fds: Sequence[int]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *argv, env=env, pass_fds=pass_fds, cwd="/", start_new_session=True, stdin=pipe, stdout=pipe, stderr=pipe
    )


async def _give_up(tree: Tree) -> str:
    """End a tree that did not come up, and return what it said on standard error."""
    tree.stop("start")
    _, complaint = await tree.ended()
    tree.close()
    return complaint.decode(errors="replace").strip()


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
    try:
        stdout, stderr = await tree.ended()
        files, skipped = await asyncio.to_thread(collect, workspace, tree.limits.workspace_mb)
    finally:
        tree.close()
        await asyncio.to_thread(clean_up)
    record |= {"files_left_out": skipped}
    return ProcessResult(tree.exit_code, tree.ended_by, stdout, stderr, files, record)
