"""The init of a program: it forks each case, ends everything, and restores the folders before the next."""

from __future__ import annotations

import _signal
import _socket
import fcntl
import marshal
import os
import select
import stat
import time

import lr_box
import lr_case
import lr_libc as libc
import lr_pack
import lr_wire as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WATCH_MS = 20
FOLDER_MODE, FILE_MODE = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o644
TICK = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Init:
    """Process 1 of a box (or the subreaper of a program where there are no namespaces).

    It never runs the program's code. The expected answers are not known here. What it touches while a case runs has to be
    copied by the kernel, page by page, for every case: its loop makes as few objects and calls as it can.

    Args:
        limits: of one case.
        folder: for the working folder and that of temporary files.
        boxed: whether this process is in namespaces of its own.
    """

    def __init__(self, limits: dict[str, Any], folder: str, *, boxed: bool) -> None:
        self.limits, self.folder, self.boxed = limits, folder, boxed
        self.work = f"{folder}/work"
        self.used = False
        self.texts: list[bytearray] = []
        self.control: _socket.socket
        """The grader's, for this program: each message brings a case, its end the program's."""

    def begin(self, user: tuple[int, int]) -> None:
        """Make this process, just begun, fit to look after cases.

        Args:
            user: its numbers in the user namespace it came from.
        """
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
        if self.boxed:
            libc.prctl(libc.PR_SET_DUMPABLE, 1)  # else its user may not write /proc/self/uid_map
            lr_box.map_user(*user)
            libc.prctl(libc.PR_SET_DUMPABLE, 0)
            lr_box.mount_private(self.limits["disk_mb"])
            libc.drop_capabilities()
        else:
            libc.prctl(libc.PR_SET_DUMPABLE, 0)
            libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
            os.makedirs(self.folder, exist_ok=True)

    def load(self, program_fd: int, code_fd: int, startup: frozenset[str]) -> None:
        """Take a program and fill its folder.

        Its text is held in bytearrays only, which `leave` wipes: nothing of it is left in this memory for the cases of a later program.

        Args:
            program_fd: what `pack` made.
            code_fd: a memory file into which the first case compiles the program.
            startup: the modules that a plain interpreter has.
        """
        self.poll = select.poll()
        self.poll.register(self.control, 0)
        length = int.from_bytes(os.pread(program_fd, lr_pack.HEAD_LENGTH, 0), "little")
        request, self.folders, sizes = marshal.loads(os.pread(program_fd, length, lr_pack.HEAD_LENGTH))
        self.files = {path: bytearray(size) for path, size in sizes}
        self.found = {path: bytearray(size) for path, size in sizes}
        self.texts = [*self.files.values(), *self.found.values()]
        at = lr_pack.HEAD_LENGTH + length
        for content in self.files.values():
            wire.read_into(content, program_fd, at)
            at += len(content)
        os.close(program_fd)
        self.fill()
        os.dup2(code_fd, lr_case.CODE)
        os.close(code_fd)
        namespace = lr_case.dress(self.work, is_call=request["kind"] == "call")
        self.case = lr_case.Case(request, namespace, self.work, lr_case.shadowed(request["own"], startup))
        self.base = int(_read("/proc/self/statm").split()[1]) * PAGE

    def limit(self) -> None:
        """Set the limits that the program's cases inherit."""
        lr_case.limit_program(self.limits, largest=max(map(len, self.files.values())), others=0 if self.boxed else _user_threads())

    def report(self, trouble: BaseException) -> None:
        """Tell the grader of trouble, which says nothing about the program."""
        self.control.send(f"trouble {type(trouble).__name__}: {trouble}".encode()[:4000])

    def leave(self) -> None:
        """Wipe the program's text and end everything in the box; in namespaces the end of this process does that."""
        for text in self.texts:
            text[:] = bytes(len(text))
        if not self.boxed:
            self.end_all()
            remove(self.folder)

    def take_case(self) -> bool:
        """Wait for the next case and make everything ready for a fork to run it; False when the program is over."""
        message, fds = wire.receive(self.control)
        if not message:
            self.leave()
            return False
        if self.used:
            self.restore()
            self.keep_code()
        self.used = True
        for number, fd in zip(lr_case.STREAMS, fds, strict=False):
            os.dup2(fd, number)
            os.close(fd)
        return True

    def keep_code(self) -> None:
        """Take what the first case compiled; as code, and not as bytes, it could not be wiped."""
        if not self.case.compiled and fcntl.fcntl(lr_case.CODE, fcntl.F_GET_SEALS):
            compiled = bytearray(os.fstat(lr_case.CODE).st_size)
            wire.read_into(compiled, lr_case.CODE)
            os.close(lr_case.CODE)
            self.case.compiled = compiled
            self.texts.append(compiled)

    def watch(self, pid: int) -> None:
        """Wait for a case within its limits, end all its processes, and send what they used, as a REPLY."""
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
                return  # the grader has closed the program: `take_case` will see it too
        if ended_by:
            os.kill(pid, _signal.SIGKILL)
        _, status, usage = os.wait4(pid, 0)
        cpu_s, peak = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
        for orphan in self.end_all():
            cpu_s += orphan.ru_utime + orphan.ru_stime
            peak = max(peak, orphan.ru_maxrss)
        wall_s = time.monotonic() - started
        self.control.send(wire.REPLY.pack(os.waitstatus_to_exitcode(status), ended_by, cpu_s, wall_s, peak / 1024))

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
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(fd, rest) :]
            os.close(fd)
        self.sizes = {folder: os.lstat(folder).st_size for folder in self.folders}
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
        """Compare the folders with what they should hold, contents included (times can be forged through mmap).

        The size of a folder in memory, as in a box, grows with each name in it.
        """
        try:
            for folder, size in self.sizes.items():
                found = os.lstat(folder)
                if found.st_mode != FOLDER_MODE or found.st_size != size:
                    return False
                if not self.boxed and set(os.listdir(folder)) != self.folders[folder]:
                    return False
            for path, content in self.files.items():
                if not _same_file(path, content, self.found[path]):
                    return False
        except OSError:
            return False
        return True


def _same_file(path: str, content: bytearray, found: bytearray) -> bool:
    """Return whether a regular file holds `content` and nothing else; `found` is where to read it, and as long."""
    look = os.lstat(path)
    if look.st_mode != FILE_MODE or look.st_size != len(content):
        return False
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    wire.read_into(found, fd)
    os.close(fd)
    return found == content


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
    """Return what a file of the kernel says; `open` would touch many more pages."""
    fd = os.open(path, os.O_RDONLY)
    try:
        said = b""
        while part := os.read(fd, 1 << 12):
            said += part
        return said
    finally:
        os.close(fd)


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
