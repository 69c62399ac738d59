"""The server's loop: one process for each program, which becomes the init of a box and forks the cases."""

import _signal
import _socket
import gc
import importlib
import marshal
import os
import sys
from typing import Any

import lr_box
import lr_case
import lr_init
import lr_libc as libc
import lr_seccomp
import lr_wire as wire

OURS = ("lr_box", "lr_case", "lr_init", "lr_libc", "lr_seccomp", "lr_server", "lr_wire")


def serve(fd: int, settings: dict[str, Any], startup: frozenset[str]) -> lr_init.Init:
    """Answer requests for programs; return in the init of each program, and nowhere else.

    Args:
        fd: the grader's socket.
        settings: the modules to preload, whether to use namespaces, the folders of the interpreter.
        startup: the modules that a plain interpreter has.
    """
    for name in settings["preload"]:
        importlib.import_module(name)
    libc.prctl(libc.PR_SET_CHILD_SUBREAPER, 1)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_IGN)
    if settings["boxed"]:
        lr_box.enter_system(settings["root"], settings["prefixes"])
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
        lr_seccomp.install()
    lr_case.hide_server(OURS, startup)
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
        pid = libc.fork_into(lr_box.PROGRAM) if settings["boxed"] else os.fork()
        if pid == 0:
            sock.close()
            return _start_init(marshal.loads(message), fds, user if settings["boxed"] else None)
        for each in fds:
            os.close(each)


def _start_init(request: dict[str, Any], fds: list[int], user: tuple[int, int] | None) -> lr_init.Init:
    """Make the box and its init; every failure goes to the grader as a message."""
    control = _socket.socket(fileno=fds[0])
    try:
        if user is not None:
            lr_box.map_user(*user)
        return lr_init.Init(control, request, archive=fds[1], code=fds[2], boxed=user is not None)
    except BaseException as error:
        wire.send(control, f"trouble {type(error).__name__}: {error}".encode())
        os._exit(1)
