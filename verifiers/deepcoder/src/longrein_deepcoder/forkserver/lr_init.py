"""The init of a program: it forks each case, ends everything, and restores the folders before the next."""

# A case costs a millisecond; pathlib would be a tenth of it.
# ruff: noqa: PTH102, PTH116, PTH118, PTH208

import json
import os
import select
import shutil
import signal
import socket
import stat
import subprocess
import time
from pathlib import Path
from typing import Any, NoReturn

import lr_box
import lr_case
import lr_libc as libc
import lr_wire as wire

WATCH_S = 0.02
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Init:
    """Process 1 of a box (or the subreaper of a program where there are no namespaces).

    It never runs the program's code. The expected answers are not known here.
    """

    def __init__(self, control: socket.socket, request: dict[str, Any], *, archive: int, code: int, boxed: bool) -> None:
        self.control, self.request, self.code, self.boxed = control, request, code, boxed
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        self.pid = os.getpid()
        self.files = unpack(wire.read_all(archive))
        os.close(archive)
        if boxed:
            self.work, self.tmp = lr_box.WORK, lr_box.TMP
            lr_box.mount_private(request["disk_mb"])
        else:
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
            self.work, self.tmp = f"{request['folder']}/work", f"{request['folder']}/tmp"
            os.mkdir(self.work)
            os.mkdir(self.tmp)
        self.modes = os.stat(self.work).st_mode, os.stat(self.tmp).st_mode
        self.fill()
        self.base = _memory("self")
        request["processes"] = request["max_processes"] + (0 if boxed else _user_threads())

    def run(self) -> lr_case.Case:
        """Answer requests for cases; return in each process that is to run one, and nowhere else."""
        while True:
            request, fds = wire.receive(self.control)
            if request is None:
                self.leave()
            pid = os.fork()
            if pid == 0:
                self.control.close()
                return lr_case.Case(self.request, fds, code=self.code, work=self.work, tmp=self.tmp, boxed=self.boxed)
            for fd in fds:
                os.close(fd)
            wire.send(self.control, self.watch(pid))
            self.restore()

    def watch(self, pid: int) -> dict[str, Any]:
        """Wait for a case within its limits, end all its processes, and return what they used."""
        started = time.monotonic()
        ended_by = ""
        poll = select.poll()
        process = os.pidfd_open(pid)
        poll.register(process, select.POLLIN)
        poll.register(self.control, 0)
        while not (events := poll.poll(WATCH_S * 1000)) and not ended_by:
            ended_by = self.over_limit(time.monotonic() - started)
        if any(fd != process for fd, _ in events):
            self.leave()
        os.close(process)
        if ended_by:
            os.kill(pid, signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        cpu_s, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        for orphan in self.end_all():
            cpu_s += orphan.ru_utime + orphan.ru_stime
            peak = max(peak, orphan.ru_maxrss)
        return {
            "exit": os.waitstatus_to_exitcode(status), "cpu_s": cpu_s, "wall_s": time.monotonic() - started,
            "memory_mb": peak / 1024, "ended_by": ended_by,
        }

    def leave(self) -> NoReturn:
        """End with everything in the box: the grader has closed the program, or is gone."""
        if not self.boxed:
            self.end_all()
            shutil.rmtree(self.request["folder"], ignore_errors=True)
        os._exit(0)

    def over_limit(self, wall_s: float) -> str:
        """Return which limit the processes of the case have passed, or an empty string.

        Time spent waiting for a CPU is taken off the wall time, so that a loaded machine changes no verdict.
        """
        cpu_s = waited_s = 0.0
        memory = 0
        pids = self.processes()
        for pid in pids:
            try:
                fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
                waited_s += int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
            except (OSError, IndexError):
                continue
            cpu_s += sum(map(int, fields[11:15])) / TICK
            memory += max(0, int(fields[21]) * PAGE - self.base)
        if cpu_s > self.request["cpu_s"]:
            return "cpu"
        most = self.request["memory_mb"] << 20
        if memory > most and sum(map(_memory, pids)) > most:
            return "memory"
        return "wall" if wall_s - waited_s > self.request["wall_s"] else ""

    def processes(self) -> list[int]:
        """Return the live descendants."""
        if self.boxed:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        found, queue = [], [self.pid]
        while queue:
            try:
                children = Path(f"/proc/{(parent := queue.pop())}/task/{parent}/children").read_text().split()
            except OSError:
                continue
            found += map(int, children)
            queue += map(int, children)
        return found

    def end_all(self) -> list[Any]:
        """Kill and reap whatever the case left; return the resources that each had used."""
        usages = []
        while True:
            try:
                if self.boxed:
                    os.kill(-1, signal.SIGKILL)
                else:
                    for pid in self.processes():
                        os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                while True:
                    usages.append(os.wait4(-1, 0)[2])
            except ChildProcessError:
                return usages

    def fill(self) -> None:
        """Write the workspace's files into the empty working folder."""
        for name, content in self.files.items():
            path = Path(self.work, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def restore(self) -> None:
        """Bring both folders back to what they were before the case."""
        if os.listdir(self.tmp) or os.stat(self.tmp).st_mode != self.modes[1]:
            self.empty(self.tmp)
        if not self.unchanged():
            self.empty(self.work)
            self.fill()

    def unchanged(self) -> bool:
        """Compare the working folder with the workspace, contents included (times can be forged through mmap)."""
        if os.stat(self.work).st_mode != self.modes[0]:
            return False
        missing = set(self.files)
        folders = {parent for name in self.files for parent in map(str, Path(name).parents)}
        pending = ["."]
        try:
            while pending:
                folder = pending.pop()
                for entry in os.scandir(os.path.join(self.work, folder)):
                    name = os.path.normpath(f"{folder}/{entry.name}")
                    mode = entry.stat(follow_symlinks=False).st_mode
                    if stat.S_ISDIR(mode) and name in folders and stat.S_IMODE(mode) == 0o755:
                        pending.append(name)
                    elif stat.S_ISREG(mode) and name in missing and stat.S_IMODE(mode) == 0o644:
                        missing.discard(name)
                        if Path(self.work, name).read_bytes() != self.files[name]:
                            return False
                    else:
                        return False
        except OSError:
            return False
        return not missing

    def empty(self, folder: str) -> None:
        """Remove everything in a folder."""
        if self.boxed:
            lr_box.empty_disk(folder, self.request["disk_mb"])
            return
        mode = self.modes[0] if folder == self.work else self.modes[1]
        subprocess.run(["chmod", "-R", "u+rwx", folder], check=True)
        subprocess.run(["rm", "-rf", folder], check=True)
        os.mkdir(folder, stat.S_IMODE(mode))


def _memory(pid: int | str) -> int:
    """Return the memory of a process in bytes, with its share of what it shares with others."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(b"Pss:"))


def _user_threads() -> int:
    """Return how many threads this user runs: without a user namespace the limit on processes counts them all."""
    count = 0
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and entry.stat().st_uid == os.geteuid():
                count += len(os.listdir(f"/proc/{entry.name}/task"))
        except OSError:
            continue
    return count


def unpack(archive: bytes) -> dict[str, bytes]:
    """Return path to content from the grader's archive: a line of JSON [[path, size], ...], then the contents."""
    head, _, body = archive.partition(b"\n")
    files, offset = {}, 0
    for name, size in json.loads(head):
        files[name] = body[offset : offset + size]
        offset += size
    return files
