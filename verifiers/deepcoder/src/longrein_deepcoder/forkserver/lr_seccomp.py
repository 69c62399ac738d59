"""A system-call filter for the server and all its forks: nothing that outlives a case, hides memory or reaches the init.

The namespaces end with the program or with the server, not with the case, so objects that are neither processes nor files
are refused (sockets, shared memory, queues, keys); so is memory that belongs to no process, and changing another process's
limits or priority. Pairs of sockets are allowed.
"""

import ctypes
import errno
import os
import struct

import lr_libc as libc

_ARCH = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED = {
    "socket": (41, 198),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
}
_OWN_PROCESS_ONLY = {  # number, and which argument names a process; 0 is the caller
    "prlimit64": ((302, 261), 0),
    "sched_setaffinity": ((203, 122), 0),
    "sched_setscheduler": ((144, 119), 0),
    "sched_setparam": ((142, 118), 0),
    "sched_setattr": ((314, 274), 0),
    "setpriority": ((141, 140), 1),
    "ioprio_set": ((251, 30), 1),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000
_X32 = 0x40000000


def install() -> None:
    """Install the filter for this process and everything it forks; OSError where that does not work."""
    machine = os.uname().machine
    if machine not in _ARCH:
        raise OSError(errno.ENOSYS, f"no system-call filter for machine type {machine}")
    program = b"".join(_instructions(*_ARCH[machine]))
    text = ctypes.create_string_buffer(program)
    header = ctypes.create_string_buffer(struct.pack("@HP", len(program) // 8, ctypes.addressof(text)))
    libc.prctl(libc.PR_SET_SECCOMP, 2, header)


def _instructions(arch: int, column: int) -> list[bytes]:
    refuse = _step(_RETURN, _REFUSE | errno.EPERM)
    steps = [_step(_LOAD, 4), _step(_EQUAL, arch, 1, 0), refuse, _step(_LOAD, 0), _step(_AT_LEAST, _X32, 0, 1), refuse]
    for numbers in _REFUSED.values():
        steps += [_step(_EQUAL, numbers[column], 0, 1), refuse]
    for numbers, argument in _OWN_PROCESS_ONLY.values():
        steps += [
            _step(_EQUAL, numbers[column], 0, 4),
            _step(_LOAD, 16 + 8 * argument),
            _step(_EQUAL, 0, 1, 0),
            refuse,
            _step(_LOAD, 0),
        ]
    return [*steps, _step(_RETURN, _ALLOW)]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
