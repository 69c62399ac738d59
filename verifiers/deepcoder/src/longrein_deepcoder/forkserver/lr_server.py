"""The server's loop, and the workers it forks: each makes one box after the other, for one program each."""

from __future__ import annotations

import _signal
import _socket
import gc
import marshal
import os
import sys

import lr_box
import lr_case
import lr_init
import lr_libc as libc
import lr_pack
import lr_pages
import lr_seccomp
import lr_warm
import lr_wire as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OURS = ("lr_box", "lr_case", "lr_init", "lr_libc", "lr_pack", "lr_pages", "lr_seccomp", "lr_server", "lr_warm", "lr_wire")
DEPTH_BELOW = 6 if sys.version_info < (3, 12) else 3  # the older ones count calls from C too
"""How deep a program begins for the interpreter; it does not count against its recursion limit."""
PINS_AT = 2
"""The program at which a worker pins pages: as it is used again, that will pay."""


def serve(fd: int, settings: dict[str, Any], startup: frozenset[str]) -> Worker:
    """Answer requests for workers; return in each of them, and nowhere else.

    Args:
        fd: the grader's socket.
        settings: whether to use namespaces, the folders of the interpreter, the limits of a case.
        startup: the modules that a plain interpreter has.
    """
    os.environ.pop("LD_BIND_NOW", None)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    lr_pages.lay_out_code()
    lr_warm.up(f"{settings['folder']}/rehearsal", settings["limits"])
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    for number in (_signal.SIGINT, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    os.umask(0o022)
    if settings["boxed"]:
        lr_box.enter_system(settings["root"], settings["prefixes"])
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    lr_case.hide_server(OURS)
    sys.setrecursionlimit(sys.getrecursionlimit() + DEPTH_BELOW)
    gc.collect()
    gc.freeze()
    sock = _socket.socket(fileno=fd)
    wire.send(sock, sys.version.split()[0].encode())
    while True:
        message, fds = wire.receive(sock)
        if not message:
            lr_init.remove(settings["folder"])
            os._exit(0)
        if libc.fork() == 0:
            sock.close()
            return Worker(_socket.socket(fileno=fds[0]), *marshal.loads(message), settings, startup)
        for each in fds:
            os.close(each)


class Worker:
    """A fork of the server that looks after one program at a time.

    The init of each is a process that borrows this one's memory. It runs none of the program's code, so nothing of a program is
    left here for the next.

    Args:
        sock: the grader's socket; each message brings a program.
        ahead: what the programs import at their beginning.
        folder: for the programs' folders where there are no namespaces.
        settings: of the server.
        startup: the modules that a plain interpreter has.
    """

    def __init__(self, sock: _socket.socket, ahead: list[str], folder: str, settings: dict[str, Any], startup: frozenset[str]) -> None:
        self.sock, self.limits, self.startup, self.boxed = sock, settings["limits"], startup, settings["boxed"]
        self.folder = lr_pack.BOX if self.boxed else folder
        self.user = os.geteuid(), os.getegid()
        self.well = True
        self.programs = 0
        self.stack = libc.make_stack(lr_case.STACK)
        lr_case.import_ahead(ahead)
        self.ring, self.areas = lr_pages.make_ring(), lr_pages.writable()
        self.streams, self.notes = lr_warm.make_streams(), os.memfd_create("notes")
        if self.boxed:
            lr_seccomp.install()
        lr_case.limit(self.limits)
        if ahead:
            gc.collect()
            gc.freeze()

    def run(self, function: Any) -> None:
        """Call `function` in an init for each program, one after the other; end with the grader's socket, or after trouble.

        Args:
            function: a START that calls `begin` and, where all went well, `end`.
        """
        while self.well:
            self.well = False
            libc.borrow(function, self.stack, lr_box.PROGRAM if self.boxed else 0)
        os._exit(0)

    def begin(self) -> lr_init.Init | None:
        """Make the box of the next program, wait for it and load it; None when the grader is gone, or after trouble."""
        init = lr_init.Init(self.limits, self.folder, boxed=self.boxed)
        error: BaseException | None = None
        try:
            init.begin(self.user)
        except BaseException as trouble:
            error = trouble
        message, fds = wire.receive(self.sock)
        if not message:
            init.leave()
            return None
        init.control = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, fds[0])
        try:
            if error is not None:
                raise error
            init.load(fds[1], fds[2], self.startup)
            self.programs += 1
            if self.programs == PINS_AT:
                self.pin(init.case)
            init.limit()
        except BaseException as trouble:
            init.report(trouble)
            return None
        return init

    def end(self) -> None:
        """Go on to the next program."""
        self.well = True

    def pin(self, case: lr_case.Case) -> None:
        """Pin the pages that the cases of this and later programs will write, if the system lets us."""
        if self.ring >= 0:
            lr_pages.pin(self.ring, lr_pages.find_written(self.areas, lr_warm.make_scout(case, self.streams), self.notes))
