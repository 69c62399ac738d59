"""The init of a program: it forks each case, ends everything, and restores the folders before the next."""

from __future__ import annotations

import _signal
import _socket
import fcntl
import gc
import marshal
import os
import resource
import select
import stat
import time

import lr_box
import lr_case
import lr_libc as libc
import lr_wire as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

WATCH_MS = 20
FOLDER_MODE, FILE_MODE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Init:
    """Process 1 of a box (or the subreaper of a program where there are no namespaces).

    It never runs the program's code. The expected answers are not known here. What it touches while a case runs has to be
    copied by the kernel, page by page, for every case: its loop makes as few objects and calls as it can.

    Args:
        control: the grader's socket; the first message brings the program, each other one a case.
        limits: of one case.
        folder: for the working folder and that of temporary files.
        boxed: whether this process is in namespaces of its own.
    """

    def __init__(self, control: _socket.socket, limits: dict[str, Any], folder: str, *, boxed: bool) -> None:
        self.control, self.limits, self.folder, self.boxed = control, limits, folder, boxed
        self.work = f"{folder}/work"
        self.used = False
        self.poll = select.poll()
        self.poll.register(control, 0)

    def begin(self) -> None:
        """Make this process, a fork of the server, fit to look after cases."""
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        if self.boxed:
            lr_box.mount_private(self.limits["disk_mb"])
            libc.drop_capabilities()
        else:
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)

    def load(self, startup: frozenset[str]) -> None:
        """Receive the program, fill its folder and import what it imports.

        Args:
            startup: the modules that a plain interpreter has.
        """
        message, fds = wire.receive(self.control)
        if not message:
            self.leave()
        request, self.folders, self.files = marshal.loads(wire.read_all(fds[0]))
        os.close(fds[0])
        self.fill()
        namespace = lr_case.dress(self.work, is_call=request["kind"] == "call")
        self.case = lr_case.Case(request, fds[1], self.files[namespace["__file__"]], namespace, self.work)
        lr_case.import_ahead(request["own"], request["ahead"], startup)
        self.base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

    def limit(self) -> None:
        """Set the limits that the program's cases inherit."""
        largest = max(map(len, self.files.values()))
        lr_case.limit_program(self.limits, largest=largest, others=0 if self.boxed else _user_threads())
        gc.freeze()

    def next_case(self) -> lr_case.Case:
        """Answer requests for cases; return in each process that is to run one, and nowhere else."""
        while True:
            if (case := self.step()) is not None:
                return case

    def step(self) -> lr_case.Case | None:
        """Answer one request; return the case in the process that is to run it, and None here."""
        message, fds = wire.receive(self.control)
        if not message:
            self.leave()
        case = self.case
        if case.code is None and fcntl.fcntl(case.code_fd, fcntl.F_GET_SEALS):
            case.code = marshal.loads(wire.read_all(case.code_fd))
            gc.freeze()
        if self.used:
            self.restore()
        self.used = True
        pid = libc.fork()
        if pid == 0:
            case.fds = fds
            return case
        self.control.send(self.watch(pid))
        for fd in fds:
            os.close(fd)
        return None

    def watch(self, pid: int) -> bytes:
        """Wait for a case within its limits, end all its processes, and return what they used, as a REPLY."""
        started = time.monotonic()
        ended_by = 0
        poll = self.poll
        process = os.pidfd_open(pid)
        poll.register(process, select.POLLIN)
        while not (events := poll.poll(WATCH_MS)) and not ended_by:
            ended_by = self.over_limit(time.monotonic() - started)
        poll.unregister(process)
        os.close(process)
        for fd, _ in events:
            if fd != process:
                self.leave()
        if ended_by:
            os.kill(pid, _signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        cpu_s, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        for orphan in self.end_all():
            cpu_s += orphan.ru_utime + orphan.ru_stime
            peak = max(peak, orphan.ru_maxrss)
        return wire.REPLY.pack(os.waitstatus_to_exitcode(status), ended_by, cpu_s, time.monotonic() - started, peak / 1024)

    def leave(self) -> NoReturn:
        """End with everything in the box: the grader has closed the program, or is gone."""
        if not self.boxed:
            self.end_all()
            remove(self.folder)
        os._exit(0)

    def over_limit(self, wall_s: float) -> int:
        """Return which limit the processes of the case have passed, as an index of ENDINGS.

        Time spent waiting for a CPU is taken off the wall time, so that a loaded machine changes no verdict. Memory that
        forked processes share counts for each of them.
        """
        cpu_s = waited_s = 0.0
        memory = 0
        for pid in self.processes():
            try:
                fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
                waited_s += int(_read(f"/proc/{pid}/schedstat").split()[1]) / 1e9
            except (OSError, IndexError):
                continue
            cpu_s += sum(map(int, fields[11:15])) / TICK
            memory += max(0, int(fields[21]) * PAGE - self.base)
        if cpu_s > self.limits["cpu_s"]:
            return 1
        if memory > self.limits["memory_mb"] << 20:
            return 3
        return 2 if wall_s - waited_s > self.limits["wall_s"] else 0

    def processes(self) -> list[int]:
        """Return the live descendants."""
        if self.boxed:
            return [int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1"]
        found: list[int] = []
        queue = [os.getpid()]
        while queue:
            try:
                children = _read(f"/proc/{(parent := queue.pop())}/task/{parent}/children").split()
            except OSError:
                continue
            found += map(int, children)
            queue += map(int, children)
        return found

    def end_all(self) -> list[Any]:
        """Kill and reap whatever the case left; return the resources that each had used."""
        usages: list[Any] = []
        while libc.kill_all() if self.boxed else self.kill_each():
            try:
                while True:
                    usages.append(os.wait4(-1, 0)[2])
            except ChildProcessError:
                pass
        return usages

    def kill_each(self) -> bool:
        """Kill every descendant; return whether there was any."""
        pids = self.processes()
        for pid in pids:
            try:
                os.kill(pid, _signal.SIGKILL)
            except ProcessLookupError:
                pass
        return bool(pids)

    def fill(self) -> None:
        """Make the working folder from the workspace, and an empty folder for temporary files."""
        os.chmod(self.folder, 0o755)
        for folder in self.folders:
            if folder != self.folder:
                os.mkdir(folder)
        for path, content in self.files.items():
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            written = 0
            while written < len(content):
                written += os.write(fd, content[written:])
            os.close(fd)
        os.chdir(self.work)

    def restore(self) -> None:
        """Bring the folders back to what they were before the cases so far."""
        if self.unchanged():
            return
        os.chdir("/")
        _command("chmod", "-R", "u+rwx", self.folder)
        remove(*[f"{self.folder}/{name}" for name in os.listdir(self.folder)])
        self.fill()

    def unchanged(self) -> bool:
        """Compare the folders with what they should hold, contents included (times can be forged through mmap)."""
        try:
            for folder, names in self.folders.items():
                if os.lstat(folder).st_mode != FOLDER_MODE or set(os.listdir(folder)) != names:
                    return False
            for path, content in self.files.items():
                if not _same_file(path, content):
                    return False
        except OSError:
            return False
        return True


def _same_file(path: str, content: bytes) -> bool:
    """Return whether a regular file holds `content` and nothing else."""
    if os.lstat(path).st_mode != FILE_MODE:
        return False
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    same = os.read(fd, len(content) + 1) == content
    os.close(fd)
    return same


def remove(*paths: str) -> None:
    """Remove trees of any depth."""
    for start in range(0, len(paths), 100):
        _command("rm", "-rf", "--", *paths[start : start + 100])


def _command(*argv: str) -> None:
    pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 2, "/dev/null", os.O_WRONLY, 0)])
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass  # the server has its children reaped by the kernel; it still waited for the end


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.readall()


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
