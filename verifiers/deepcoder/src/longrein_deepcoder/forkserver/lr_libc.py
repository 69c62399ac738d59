"""The system calls that Python 3.11 does not wrap."""

import ctypes
import os

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUTS = 0x00020000, 0x08000000, 0x04000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38

_SIGCHLD = 17
_libc = ctypes.CDLL(None, use_errno=True)
_python = ctypes.PyDLL(None, use_errno=True)


_fork, _kill, _capset = _python.fork, _libc.kill, _libc.capset  # looked up here, and not in each fork


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move the calling process into new namespaces."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


_CLONE = {"x86_64": 56, "aarch64": 220}.get(os.uname().machine, -1)


def fork_into(flags: int) -> int:
    """Fork with the child in new namespaces, as its init: one process less than unshare and fork."""
    pid: int = _python.syscall(ctypes.c_long(_CLONE), ctypes.c_ulong(flags | _SIGCHLD), None, None, None, None)
    return pid if pid >= 0 else _check(pid, "clone")


def fork() -> int:
    """Fork without the interpreter's own preparations: with one thread and no hooks they only copy some forty pages each time."""
    pid: int = _fork()
    return pid if pid >= 0 else _check(pid, "fork")


def kill_all() -> bool:
    """Kill every process that this one may see; return whether there was any. (`os.kill` would raise where there was none.)"""
    return bool(_kill(-1, 9) == 0)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    _check(
        _libc.mount(source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None),
        f"mount {target}",
    )


def umount(target: str) -> None:
    """Detach a mount."""
    _check(_libc.umount2(target.encode(), ctypes.c_int(MNT_DETACH)), f"umount {target}")


def pivot_root(new: str, old: str) -> None:
    """pivot_root(2)."""
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    _check(_libc.syscall(ctypes.c_long(number), new.encode(), old.encode()), "pivot_root")


def prctl(option: int, value: int, pointer: "ctypes._Pointer | None" = None) -> None:  # type: ignore[type-arg]
    """prctl(2) with one or two arguments."""
    _check(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), pointer or ctypes.c_ulong(0), 0, 0), f"prctl {option}")


_CAP_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)
_NO_CAPS = (ctypes.c_uint32 * 6)()


def drop_capabilities() -> None:
    """Give up every capability for good."""
    _check(_capset(_CAP_HEADER, _NO_CAPS), "capset")
