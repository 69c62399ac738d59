"""The system calls that Python 3.11 does not wrap."""

from __future__ import annotations

import ctypes
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUTS = 0x00020000, 0x08000000, 0x04000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
READ, WRITE, EXECUTE = 1, 2, 4
PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 4, 22, 36, 38

_SIGCHLD = 17
_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000
_MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_NORESERVE = 2, 0x20, 0x4000
_MREMAP_MAYMOVE, _MREMAP_FIXED, _MADV_COLLAPSE = 1, 2, 25
_GUARD = 1 << 20
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


START = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
"""A function that `borrow` takes, made before the system-call filter is installed."""


def make_stack(size: int) -> int:
    """Return the top of a new stack of `size` bytes; what runs past its end is killed, as at the end of any stack."""
    bottom = map_memory(size)
    protect(bottom, bottom + _GUARD, 0)
    return bottom + size


def map_memory(size: int) -> int:
    """Return the address of `size` new bytes."""
    return _on_memory("mmap", 0, size, READ | WRITE, _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE, -1, 0)


def unmap(start: int, size: int) -> None:
    """Give up whatever is mapped in a range."""
    _on_memory("munmap", start, size)


def protect(start: int, end: int, mode: int) -> None:
    """Set what may be done with a range."""
    _on_memory("mprotect", start, end - start, mode)


def collapse(start: int, size: int) -> None:
    """Put a range into huge pages; OSError where that does not work."""
    _on_memory("madvise", start, size, _MADV_COLLAPSE)


def move(start: int, size: int, target: int) -> None:
    """Move a mapping, in one step, to the place of another."""
    _on_memory("mremap", start, size, size, _MREMAP_MAYMOVE | _MREMAP_FIXED, target)


def _on_memory(name: str, *arguments: int) -> int:
    function = getattr(_libc, name)
    function.restype = ctypes.c_long
    result: int = function(*map(ctypes.c_long, arguments))
    return _check(result, name)


def borrow(function: ctypes._FuncPointer, stack: int, flags: int) -> None:
    """Call `function` in a new process, in new namespaces, that borrows this one's memory; return when it has ended.

    It costs a small part of a fork, as no page is copied. This process stands still meanwhile (CLONE_VFORK), so the interpreter is
    used by one of them at a time; what the function does to its objects stays.

    Args:
        function: a START; the process ends when it returns.
        stack: its top.
        flags: the namespaces.
    """
    _check(_python.clone(function, ctypes.c_void_p(stack), ctypes.c_int(flags | _CLONE_VM | _CLONE_VFORK | _SIGCHLD), None), "clone")


def fork() -> int:
    """Fork without the interpreter's own preparations: with one thread and no hooks they only copy some forty pages each time."""
    pid: int = _fork()
    return pid if pid >= 0 else _check(pid, "fork")


def syscall(number: int, *arguments: Any) -> int:
    """Make a system call that the C library does not wrap; negative where it failed."""
    result: int = _libc.syscall(ctypes.c_long(number), *arguments)
    return result


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
    _check(syscall(number, new.encode(), old.encode()), "pivot_root")


def prctl(option: int, value: int, pointer: ctypes._Pointer | None = None) -> None:  # type: ignore[type-arg]
    """prctl(2) with one or two arguments."""
    _check(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), pointer or ctypes.c_ulong(0), 0, 0), f"prctl {option}")


_CAP_HEADER = (ctypes.c_uint32 * 2)(0x20080522, 0)
_NO_CAPS = (ctypes.c_uint32 * 6)()


def drop_capabilities() -> None:
    """Give up every capability for good."""
    _check(_capset(_CAP_HEADER, _NO_CAPS), "capset")
