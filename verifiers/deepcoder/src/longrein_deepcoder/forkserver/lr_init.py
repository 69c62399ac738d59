"""The init of a program: it forks each case, ends everything, and restores the folders before the next."""

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
from typing import Any, NoReturn

import lr_box
import lr_case
import lr_libc as libc
import lr_wire as wire

WATCH_MS = 20
FOLDER_MODE, FILE_MODE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Init:
    """Process 1 of a box (or the subreaper of a program where there are no namespaces).

    It never runs the program's code. The expected answers are not known here.
    """

    def __init__(self, control: _socket.socket, request: dict[str, Any], *, archive: int, code: int, boxed: bool) -> None:
        self.control, self.request, self.code, self.boxed = control, request, code, boxed
        libc.prctl(libc.PR_SET_DUMPABLE, 0)
        for number in (_signal.SIGCHLD, _signal.SIGINT, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        os.umask(0o022)
        self.files = marshal.loads(wire.read_all(archive))
        os.close(archive)
        if boxed:
            self.folder = lr_box.BOX
            lr_box.mount_private(request["disk_mb"])
            libc.drop_capabilities()
        else:
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
            self.folder = request["folder"]
        self.fill()
        self.base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        request["processes"] = request["max_processes"] + (0 if boxed else _user_threads())
        lr_case.limit_program(request, largest=max(map(len, self.files.values())))
        self.case = lr_case.Case(request, code, lr_case.dress(f"{self.folder}/work", is_call=request["kind"] == "call"))
        gc.freeze()

    def next_case(self) -> lr_case.Case:
        """Answer requests for cases; return in each process that is to run one, and nowhere else."""
        while True:
            message, fds = wire.receive(self.control)
            if not message:
                self.leave()
            if self.case.code is None and fcntl.fcntl(self.code, fcntl.F_GET_SEALS):
                self.case.code = marshal.loads(wire.read_all(self.code))
                gc.freeze()
            pid = os.fork()
            if pid == 0:
                self.case.fds = fds
                return self.case
            for fd in fds:
                os.close(fd)
            wire.send(self.control, self.watch(pid))
            self.restore()

    def watch(self, pid: int) -> bytes:
        """Wait for a case within its limits, end all its processes, and return what they used: JSON."""
        started = time.monotonic()
        ended_by = ""
        poll = select.poll()
        process = os.pidfd_open(pid)
        poll.register(process, select.POLLIN)
        poll.register(self.control, 0)
        while not (events := poll.poll(WATCH_MS)) and not ended_by:
            ended_by = self.over_limit(time.monotonic() - started)
        if any(fd != process for fd, _ in events):
            self.leave()
        os.close(process)
        if ended_by:
            os.kill(pid, _signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        cpu_s, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        for orphan in self.end_all():
            cpu_s += orphan.ru_utime + orphan.ru_stime
            peak = max(peak, orphan.ru_maxrss)
        return (
            f'{{"exit": {os.waitstatus_to_exitcode(status)}, "cpu_s": {cpu_s}, "wall_s": {time.monotonic() - started}, '
            f'"memory_mb": {peak / 1024}, "ended_by": "{ended_by}"}}'
        ).encode()

    def leave(self) -> NoReturn:
        """End with everything in the box: the grader has closed the program, or is gone."""
        if not self.boxed:
            self.end_all()
            remove(self.request["folder"])
        os._exit(0)

    def over_limit(self, wall_s: float) -> str:
        """Return which limit the processes of the case have passed, or an empty string.

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
        if cpu_s > self.request["cpu_s"]:
            return "cpu"
        if memory > self.request["memory_mb"] << 20:
            return "memory"
        return "wall" if wall_s - waited_s > self.request["wall_s"] else ""

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
        usages = []
        while True:
            try:
                if self.boxed:
                    os.kill(-1, _signal.SIGKILL)
                else:
                    for pid in self.processes():
                        os.kill(pid, _signal.SIGKILL)
            except ProcessLookupError:
                pass
            try:
                while True:
                    usages.append(os.wait4(-1, 0)[2])
            except ChildProcessError:
                return usages

    def fill(self) -> None:
        """Make the working folder from the workspace, and an empty folder for temporary files."""
        os.chmod(self.folder, 0o755)
        os.mkdir(f"{self.folder}/tmp")
        os.mkdir(f"{self.folder}/work")
        for name, content in self.files.items():
            path = f"{self.folder}/work/{name}"
            if "/" in name:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb", buffering=0) as file:
                file.write(content)
        os.chdir(f"{self.folder}/work")

    def restore(self) -> None:
        """Bring the folders back to what they were before the case."""
        if self.unchanged():
            return
        os.chdir("/")
        _command("chmod", "-R", "u+rwx", self.folder)
        remove(*(f"{self.folder}/{name}" for name in os.listdir(self.folder)))
        self.fill()

    def unchanged(self) -> bool:
        """Compare the folders with what they should hold, contents included (times can be forged through mmap)."""
        missing = {f"/work/{name}": content for name, content in self.files.items()}
        folders = {"", "/tmp", *(name[:at] for name in missing for at, letter in enumerate(name) if letter == "/")}
        for folder in folders:
            path = self.folder + folder
            try:
                if os.stat(path, follow_symlinks=False).st_mode != FOLDER_MODE:
                    return False
                for entry in os.scandir(path):
                    name = f"{folder}/{entry.name}"
                    if name in folders:
                        continue
                    expected = missing.pop(name, None)
                    if expected is None or entry.stat(follow_symlinks=False).st_mode != FILE_MODE or _read(entry.path) != expected:
                        return False
            except OSError:
                return False
        return not missing


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
