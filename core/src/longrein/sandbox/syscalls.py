"""The system calls that no session needs, refused by a filter (seccomp). Standard library only: `init.py` loads it too.

Refused is what would let a session hold memory that belongs to no process and no bounded file system, make namespaces (in
one of its own it could mount such file systems), touch another process's memory, or keep something in the kernel after
its end. Debuggers that trace do not work inside.
"""

from __future__ import annotations

import errno
import os
import struct

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine type to AUDIT_ARCH value and column below."""
REFUSED = {
    errno.EPERM: {
        "ptrace": (101, 117),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "kcmp": (312, 272),
        "pidfd_getfd": (438, 438),
        "mount": (165, 40),
        "umount2": (166, 39),
        "pivot_root": (155, 41),
        "open_tree": (428, 428),
        "move_mount": (429, 429),
        "fsopen": (430, 430),
        "fsmount": (432, 432),
        "mount_setattr": (442, 442),
        "unshare": (272, 97),
        "setns": (308, 268),
        "add_key": (248, 217),
        "request_key": (249, 218),
        "keyctl": (250, 219),
        "bpf": (321, 280),
        "perf_event_open": (298, 241),
        "userfaultfd": (323, 282),
        "io_uring_setup": (425, 425),
        "syslog": (103, 116),
    },
    # Programs know how to go on without these.
    errno.ENOSYS: {
        "clone3": (435, 435),
        "memfd_create": (319, 279),
        "memfd_secret": (447, 447),
        "shmget": (29, 194),
        "semget": (64, 190),
        "msgget": (68, 186),
    },
}
CLONE = (56, 220)
CLONE_NEWUSER = 0x10000000
SIGNALS = {
    "kill": (62, 129),
    "tgkill": (234, 131),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434),
}
"""Calls whose first argument is the process that gets a signal."""
SIGNALS_REFUSED = {"tkill": (200, 130), "pidfd_send_signal": (424, 424)}
"""Calls that name it in another way."""
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000
X32 = 0x40000000


def program(*, guard: int | None = None) -> bytes | None:
    """Return the filter as a BPF program, or None on a machine type that it is not written for.

    Args:
        guard: a process that may get no signal from the session, nor may "all processes"; for sessions that share the
            user's processes.
    """
    machine = os.uname().machine
    if machine not in MACHINES:
        return None
    arch, column = MACHINES[machine]
    # Two ways past a list of numbers: another machine's numbering, and x86's third one.
    steps = [
        _step(LOAD, 4),
        _step(EQUAL, arch, 1, 0),
        _refuse(errno.EPERM),
        _step(LOAD, 0),
        _step(AT_LEAST, X32, 0, 1),
        _refuse(errno.EPERM),
    ]
    for number, calls in REFUSED.items():
        for columns in calls.values():
            steps += [_step(EQUAL, columns[column], 0, 1), _refuse(number)]
    steps += [_step(EQUAL, CLONE[column], 0, 4), _step(LOAD, 16), _step(ANY_BIT, CLONE_NEWUSER, 0, 1), _refuse(errno.EPERM), _step(LOAD, 0)]
    if guard is not None:
        for columns in SIGNALS_REFUSED.values():
            steps += [_step(EQUAL, columns[column], 0, 1), _refuse(errno.EPERM)]
        for columns in SIGNALS.values():
            whom = [_step(EQUAL, guard, 2, 0), _step(EQUAL, -guard & 0xFFFFFFFF, 1, 0), _step(EQUAL, 0xFFFFFFFF, 0, 1)]
            steps += [_step(EQUAL, columns[column], 0, 6), _step(LOAD, 16), *whom, _refuse(errno.EPERM), _step(LOAD, 0)]
    return b"".join([*steps, _step(RETURN, ALLOW)])


def state() -> str:
    """Return whether the filter is in force, in words."""
    return "filter (seccomp)" if program() else f"not in force: no filter for machine type {os.uname().machine}"


def _refuse(number: int) -> bytes:
    return _step(RETURN, REFUSE | number)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
