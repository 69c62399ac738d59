# ruff: noqa: PTH123, PTH208, SIM105 - pathlib costs 15 ms at every start
"""The first process of a session: `python -I -S init.py JSON`, standard library only and few imports, for it starts with each.

It relays loopback to the capture socket (bubblewrap), sets the limits, starts the agent, watches the process tree, and
ends it when the agent exits, when the tree passes a limit, or when standard input, the engine's lifeline, ends.
Descriptor `ready_fd` carries "ready" once the agent runs, or a line that says why it does not. In bubblewrap this is
process 1 of its namespace and takes all with it; elsewhere it is a child subreaper: orphans of the tree come to it.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MIB = 1 << 20
ENDED_BY_LIMIT = 250
WATCH_S = 0.5

_ending = threading.Lock()


def main() -> None:
    """Run one session to its end."""
    plan = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.getpid() != 1:
        become_subreaper()
    if plan["relay_socket"]:
        listen(plan["relay_port"], plan["relay_socket"])
    agent = start(plan)
    for thread in (follow_engine, watch):
        threading.Thread(target=thread, args=(plan,), daemon=True).start()
    finish(reap(agent))


def become_subreaper() -> None:
    """Let orphans of the tree come to this process."""
    import ctypes  # 10 ms that bubblewrap sessions save

    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def start(plan: dict[str, Any]) -> int:
    """Fork and exec the agent, say on `ready_fd` how it went, return its pid."""
    failed, failure = os.pipe()  # closed by a successful exec
    agent = os.fork()
    if not agent:
        try:
            become_agent(plan)
        except (OSError, ValueError) as error:
            os.write(failure, f"cannot start {plan['argv'][0]}: {error}".encode())
        finally:
            os._exit(127)
    os.close(failure)
    os.write(plan["ready_fd"], (os.read(failed, 4096) or b"ready") + b"\n")
    os.close(plan["ready_fd"])
    os.close(failed)
    return agent


def become_agent(plan: dict[str, Any]) -> None:
    """Replace this process, a fresh fork, by the agent."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.setsid()
    for ignored in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(ignored, signal.SIG_DFL)
    # Not RLIMIT_AS: JavaScript engines reserve far more address space than they use.
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, plan["file_size_mb"] * MIB),
        (resource.RLIMIT_DATA, plan["memory_mb"] * MIB),
    ):
        resource.setrlimit(kind, (limit, limit))
    os.chdir(plan["workdir"])
    os.execvp(plan["argv"][0], plan["argv"])


def reap(agent: int) -> int:
    """Reap every child until the agent ends; return its exit code, 128 + n for signal n."""
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:  # another thread ends the session and was faster
            return ENDED_BY_LIMIT
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def follow_engine(plan: dict[str, Any]) -> None:
    """End the session when the engine says so, or dies, which ends the input without a word; then its folder is removed here."""
    said = os.read(0, 4)
    finish(128 + signal.SIGKILL, remove=None if said else plan["remove"])


def watch(plan: dict[str, Any]) -> None:
    """End the session when the tree as a whole has too many processes or too much memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    while True:
        time.sleep(WATCH_S)
        pids = descendants()
        used = sum(private_pages(pid) for pid in pids) * page // MIB
        for what, value, limit in (("processes", len(pids), plan["max_processes"]), ("MiB of memory", used, plan["memory_mb"])):
            if value > limit:
                os.write(2, f"\nlongrein: session ended: {value} {what}, limit {limit}\n".encode())
                finish(ENDED_BY_LIMIT)


def descendants() -> set[int]:
    """Return the pids below this process."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    parents[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue  # ended meanwhile
    found: set[int] = set()
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found |= new
    return found


def private_pages(pid: int) -> int:
    """Return the resident pages of a process that it shares with no file."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            _, resident, shared, *_ = statm.read().split()
    except (OSError, ValueError):
        return 0
    return int(resident) - int(shared)


def finish(code: int, *, remove: str | None = None) -> NoReturn:
    """Kill what is left of the tree, remove a folder if told so, and exit; the first caller decides."""
    _ending.acquire()
    kill_tree()
    if remove:
        import shutil

        shutil.rmtree(remove, ignore_errors=True)
    os._exit(code)


def kill_tree() -> None:
    """Kill descendants until there are none; stopped first, so that none forks in between."""
    while pids := descendants():
        for sig in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                try:
                    os.kill(pid, sig)
                except OSError:
                    continue  # ended meanwhile
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        time.sleep(0.002)


def listen(port: int, path: str) -> None:
    """Accept on loopback and forward each connection to the unix socket."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(64)
    threading.Thread(target=accept, args=(server, path), daemon=True).start()


def accept(server: socket.socket, path: str) -> None:
    """Connect each client to the capture socket."""
    while True:
        inner, _ = server.accept()
        outer = socket.socket(socket.AF_UNIX)
        try:
            outer.connect(path)
        except OSError:
            inner.close()
            continue
        for pair in ((inner, outer), (outer, inner)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def pump(source: socket.socket, target: socket.socket) -> None:
    """Copy one direction until its source ends, which the target is told.

    A target that reads no more may still be answering (a refusal before the body was read): the rest is dropped, and the
    other direction goes on. A client that dies ends its source, so the engine sees that too.
    """
    reads = True
    end = socket.SHUT_WR
    try:
        while data := source.recv(65536):
            if reads:
                try:
                    target.sendall(data)
                except OSError:
                    reads = False
    except OSError:
        end = socket.SHUT_RDWR
    try:
        target.shutdown(end)
    except OSError:
        pass  # it ended first


if __name__ == "__main__":
    main()
