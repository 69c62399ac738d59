# ruff: noqa: PTH120, PTH123, PTH208, SIM105 - pathlib costs 15 ms at every start
"""The first process of a session: `python -I -S init.py JSON`, standard library only and few imports, for it starts with each.

It relays loopback to the capture socket (where the network is the session's own), hands the engine its folders (where they
are in memory), starts the agent, watches the process tree, and ends it when the agent exits, when the tree passes a limit,
or when standard input, the engine's lifeline, ends. Descriptor `engine_fd` carries "ready" once the agent runs, or a line
that says why it does not. In a namespace this is process 1 and takes all with it; elsewhere it is a child subreaper:
orphans of the tree come to it.
"""

from __future__ import annotations

import ctypes
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
WATCH_S, QUIET_S = 0.25, 1.0
"""Between two rounds: of a busy tree, and of one that starts nothing and uses less than a quarter of its memory."""
LOOK_S, QUIET_LOOK_S = 0.02, 0.25
"""Between two looks at how many processes were started."""
DISK_S = 2.0
"""Between two measurements of folders on disk, for each file is looked at."""
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38

_ending = threading.Lock()
_libc = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Run one session to its end."""
    plan = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if plan["engine_fd"] > 2:
        os.set_inheritable(plan["engine_fd"], False)
    go_first_when_memory_ends()
    prctl(PR_SET_DUMPABLE, 0)  # else the agent, which has the same user, could write into this process
    if os.getpid() != 1:
        prctl(PR_SET_CHILD_SUBREAPER, 1)
    if plan["relay_socket"]:
        listen(plan["relay_port"], plan["relay_socket"])
    if plan["hand_over"]:
        hand_over(plan)
    agent = start(plan)
    for thread in (follow_engine, watch):
        threading.Thread(target=thread, args=(plan,), daemon=True).start()
    finish(reap(agent))


def go_first_when_memory_ends() -> None:
    """Have the kernel take this session, and not the engine, where the machine runs out of memory all the same."""
    try:
        with open("/proc/self/oom_score_adj", "w") as score:
            score.write("1000")
    except OSError:
        pass  # a /proc that is read-only


def prctl(option: int, value: int, pointer: Any = 0) -> None:
    """prctl(2)."""
    if _libc.prctl(option, ctypes.c_ulong(value), pointer, 0, 0):
        raise OSError(ctypes.get_errno(), f"prctl {option}")


def hand_over(plan: dict[str, Any]) -> None:
    """Give the engine descriptors of the session's folders, and wait until it has filled them; it reads them after the end."""
    channel = socket.socket(fileno=plan["engine_fd"])
    folders = [os.open(folder, os.O_RDONLY | os.O_DIRECTORY) for folder in plan["hand_over"]]
    socket.send_fds(channel, [b"folders\n"], folders)
    if not channel.recv(1):
        sys.exit("the engine has gone")
    for folder in folders:
        os.close(folder)
    channel.detach()


def start(plan: dict[str, Any]) -> int:
    """Fork and exec the agent, say on `engine_fd` how it went, return its pid."""
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
    said = (os.read(failed, 4096) or b"ready") + b"\n"
    os.close(failed)
    try:
        os.write(plan["engine_fd"], said)
    except OSError:
        pass  # the engine has given this session up; its input has ended too, which `follow_engine` sees
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
    if plan["guard"]:
        refuse_calls()
    os.chdir(plan["workdir"])
    os.execvp(plan["argv"][0], plan["argv"])


def refuse_calls() -> None:
    """Install the filter of system calls, with this session's first process guarded; bubblewrap installs its own."""
    sys.path.insert(0, os.path.dirname(__file__))
    from syscalls import program  # type: ignore[import-not-found]

    if filtered := program(guard=os.getppid()):
        import struct

        text = ctypes.create_string_buffer(filtered)
        header = ctypes.create_string_buffer(struct.pack("@HP", len(filtered) // 8, ctypes.addressof(text)))
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        prctl(PR_SET_SECCOMP, 2, header)


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
    """End the session when the tree as a whole has too many processes, too much memory or too much on disk.

    A tree that multiplies is not waited for: the number that the newest process got tells how many were started since the last round.
    Most sessions wait for a model most of the time, so looking costs as little as it can: the tree is listed again only when something
    was started, and the looks at that number come less often while nothing is.
    """
    numbers = os.open("/proc/loadavg", os.O_RDONLY)
    listed, tree, rest, measured = -1, dict[int, int](), WATCH_S, 0.0
    while True:
        newest, rest = newest_pid(numbers), min(2 * rest, QUIET_S)
        if newest != listed:
            listed, tree, rest = newest, descendants(), WATCH_S
        uses = tree_use(plan, tree)
        if plan["hand_over"] or time.monotonic() - measured > DISK_S:
            uses, measured = [*disk_use(plan), *uses], time.monotonic()
        for what, value, limit in uses:
            if value > limit:
                os.write(2, f"\nlongrein: session ended: {value} {what}, limit {limit}\n".encode())
                finish(ENDED_BY_LIMIT)
        _, memory, most = uses[-1]
        if memory > most / 4:
            rest = WATCH_S
        end, pause = time.monotonic() + rest, LOOK_S
        while time.monotonic() < end and (now := newest_pid(numbers)) - listed < plan["max_processes"] / 2:
            pause = min(2 * pause, QUIET_LOOK_S)
            if now != newest:
                newest, pause, end = now, LOOK_S, min(end, time.monotonic() + WATCH_S)
            time.sleep(pause)


def newest_pid(numbers: int) -> int:
    """Return the number of the process or thread that was started last, in this namespace; `numbers` is /proc/loadavg."""
    return int(os.pread(numbers, 128, 0).rpartition(b" ")[2])


def tree_use(plan: dict[str, Any], tree: dict[int, int]) -> list[tuple[str, int, int]]:
    """Return what the tree's processes use, and may: name, value, limit."""
    if len(tree) > plan["max_processes"]:
        return [("processes", len(tree), plan["max_processes"])]  # at once: looking at each takes longer than making more
    kib = sum(map(private_kib, tree))
    return [
        ("processes", len(tree), plan["max_processes"]),
        ("threads", sum(tree.values()), plan["max_threads"]),
        ("MiB of memory", kib // 1024, plan["memory_mb"]),
    ]


def disk_use(plan: dict[str, Any]) -> list[tuple[str, int, int]]:
    """Return what is in the session's folders: those in memory know it themselves, the files of others are counted."""
    if not plan["folders"]:
        return []
    if plan["hand_over"]:
        found = [(s.f_frsize * (s.f_blocks - s.f_bfree), s.f_files - s.f_ffree) for s in map(os.statvfs, plan["folders"])]
    else:
        found = [count(folder, plan["max_files"]) for folder in plan["folders"]]
    used, files = (max(values) for values in zip(*found, strict=True))
    return [("MiB in a folder", used // MIB, plan["disk_mb"]), ("files in a folder", files, plan["max_files"])]


def count(folder: str, most: int) -> tuple[int, int]:
    """Return the bytes on disk below a folder and its files; counting ends beyond `most` files."""
    used = files = 0
    waiting = [folder]
    while waiting and files <= most:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    files += 1
                    used += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
        except OSError:
            continue  # removed meanwhile, or too deep
    return used, files


def descendants() -> dict[int, int]:
    """Return the pids below this process, and how many threads each has."""
    parents, threads = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    fields = stat.read().rpartition(b")")[2].split()
            except OSError:
                continue  # ended meanwhile
            parents[int(entry)], threads[int(entry)] = int(fields[1]), int(fields[17])
    found: dict[int, int] = {}
    new = {os.getpid()}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new}
        found.update((pid, threads[pid]) for pid in new)
    return found


def private_kib(pid: int) -> int:
    """Return the resident memory of a process that no file on disk stands behind."""
    try:
        status = os.open(f"/proc/{pid}/status", os.O_RDONLY)
    except OSError:
        return 0
    try:
        lines = os.read(status, 1 << 14).split(b"\n")
    except OSError:
        return 0
    finally:
        os.close(status)
    return sum(int(line.split()[1]) for line in lines if line.startswith((b"RssAnon:", b"RssShmem:")))


def finish(code: int, *, remove: str | None = None) -> NoReturn:
    """End what is left of the tree, remove a folder if told so, and exit; the first caller decides."""
    _ending.acquire()
    if os.getpid() != 1:  # the kernel ends a namespace with its first process
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
