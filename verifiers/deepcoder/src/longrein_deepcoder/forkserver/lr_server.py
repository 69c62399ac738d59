"""The server's loop: one process for each program, which becomes the init of a box and forks the cases."""

from __future__ import annotations

import _signal
import _socket
import gc
import os
import sys

import lr_box
import lr_case
import lr_init
import lr_libc as libc
import lr_pack
import lr_seccomp
import lr_warm
import lr_wire as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

OURS = ("lr_box", "lr_case", "lr_init", "lr_libc", "lr_pack", "lr_seccomp", "lr_server", "lr_warm", "lr_wire")


def serve(fd: int, settings: dict[str, Any], startup: frozenset[str]) -> lr_init.Init:
    """Answer requests for boxes; return in the init of each box, and nowhere else.

    Args:
        fd: the grader's socket.
        settings: whether to use namespaces, the folders of the interpreter, the limits of a case.
        startup: the modules that a plain interpreter has.
    """
    os.environ.pop("LD_BIND_NOW", None)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    lr_warm.up(f"{settings['folder']}/rehearsal", settings["limits"])
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    for number in (_signal.SIGINT, _signal.SIGXFSZ):
        _signal.signal(number, _signal.SIG_DFL)
    os.umask(0o022)
    boxed = settings["boxed"]
    if boxed:
        lr_box.enter_system(settings["root"], settings["prefixes"])
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        lr_seccomp.install()
    lr_case.limit(settings["limits"])
    lr_case.hide_server(OURS)
    gc.collect()
    gc.freeze()
    user = os.geteuid(), os.getegid()
    sock = _socket.socket(fileno=fd)
    wire.send(sock, sys.version.split()[0].encode())
    while True:
        message, fds = wire.receive(sock)
        if not message:
            lr_init.remove(settings["folder"])
            os._exit(0)
        pid = libc.fork_into(lr_box.PROGRAM) if boxed else libc.fork()
        if pid == 0:
            sock.close()
            return _start_init(fds[0], settings["limits"], user if boxed else None, message.decode(), startup)
        for each in fds:
            os.close(each)


def _start_init(fd: int, limits: dict[str, Any], user: tuple[int, int] | None, folder: str, startup: frozenset[str]) -> lr_init.Init:
    """Make the box and its init; every failure goes to the grader as a message."""
    control = _socket.socket(fileno=fd)
    try:
        if user is None:
            init = lr_init.Init(control, limits, folder, boxed=False)
        else:
            lr_box.map_user(*user)
            init = lr_init.Init(control, limits, lr_pack.BOX, boxed=True)
        init.begin()
        init.load(startup)
        init.limit()
        return init
    except BaseException as error:
        wire.send(control, f"trouble {type(error).__name__}: {error}".encode()[:4000])
        os._exit(1)
