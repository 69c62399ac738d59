"""Boxes: the server's read-only view of the system, and fresh namespaces for each program."""

import errno
import os
import stat

import lr_libc as libc
from lr_pack import BOX

TMP = f"{BOX}/tmp"
SERVER = libc.CLONE_NEWNS | libc.CLONE_NEWNET | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS
PROGRAM = libc.CLONE_NEWUSER | libc.CLONE_NEWNS | libc.CLONE_NEWPID
"""The other namespaces hold only what the system-call filter refuses."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
DEVICES = ("null", "zero", "full", "random", "urandom")
NOBODY = 65534
INSIDE_ID = 1000
ETC = {"passwd": f"user:x:{INSIDE_ID}:{INSIDE_ID}:user:/tmp:/bin/sh\n", "group": f"user:x:{INSIDE_ID}:\n", "hosts": "127.0.0.1 localhost\n"}


def enter_system(new: str, prefixes: list[str]) -> None:
    """Put this process before a read-only root, made at the empty folder `new`, of system folders and Python's `prefixes` only.

    Root becomes an ordinary user afterwards: the kernel exempts root from the limit on processes.
    """
    uid, gid = os.geteuid(), os.getegid()
    try:
        libc.unshare(SERVER)
        privileged = True
    except PermissionError:
        libc.unshare(SERVER | libc.CLONE_NEWUSER)
        map_user(uid, gid)
        privileged = False
    libc.mount("none", "/", "", libc.MS_REC | libc.MS_PRIVATE)
    libc.mount("root", new, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, "mode=755,size=1m")
    for path in [*SYSTEM, *prefixes]:
        if os.path.lexists(path):
            _bind(path, new)
    for name in ("/proc", "/dev", "/etc", "/old", TMP):
        os.makedirs(new + name, exist_ok=True)
    if not os.path.exists(f"{new}/tmp"):
        os.symlink(TMP, f"{new}/tmp")
    for name in DEVICES:
        _bind(f"/dev/{name}", new)
    for name, target in {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "shm": TMP}.items():
        os.symlink(target, f"{new}/dev/{name}")
    for name, text in ETC.items():
        _write(f"{new}/etc/{name}", text)
    libc.mount("/proc", f"{new}/proc", "", libc.MS_BIND | libc.MS_REC)
    libc.pivot_root(new, f"{new}/old")
    os.chdir("/")
    libc.umount("/old")
    os.rmdir("/old")
    libc.mount("none", "/", "", libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | libc.MS_NOSUID | libc.MS_NODEV)
    if privileged:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        libc.prctl(libc.PR_SET_DUMPABLE, 1)


def _bind(path: str, new: str) -> None:
    target = new + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        os.symlink(os.readlink(path), target)
        return
    if stat.S_ISDIR(mode):
        os.makedirs(target, exist_ok=True)
    else:
        _write(target, "")
    libc.mount(path, target, "", libc.MS_BIND)
    if not stat.S_ISCHR(mode):
        _read_only(target)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _set(path: str, value: bytes) -> None:
    """Write a setting of the kernel; `open` would touch many more pages of every fork."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, value)
    finally:
        os.close(fd)


def _read_only(target: str) -> None:
    """Remount a bind read-only, keeping the flags that a user namespace may not clear."""
    kept = os.statvfs(target).f_flag & (libc.MS_NODEV | libc.MS_NOEXEC)
    libc.mount("none", target, "", libc.MS_REMOUNT | libc.MS_BIND | libc.MS_RDONLY | libc.MS_NOSUID | kept)


def map_user(uid: int, gid: int) -> None:
    """Give this process, in a new user namespace, an ordinary user's number.

    Args:
        uid, gid: its numbers in the namespace it came from.
    """
    _set("/proc/self/setgroups", b"deny")
    _set("/proc/self/uid_map", b"%d %d 1" % (INSIDE_ID, uid))
    _set("/proc/self/gid_map", b"%d %d 1" % (INSIDE_ID, gid))


def mount_private(disk_mb: int) -> None:
    """Give the init its own /proc and an empty, writable /box with a bound on size and number of files."""
    try:
        libc.mount("proc", "/proc", "proc", libc.MS_NOSUID | libc.MS_NODEV | libc.MS_NOEXEC)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES):
            raise
        libc.mount("none", "/proc", "tmpfs", libc.MS_RDONLY, "size=4k")
    try:
        _set("/proc/sys/user/max_user_namespaces", b"0")
    except OSError:
        pass  # a hardening only: what a nested namespace holds dies with the case all the same
    libc.mount("disk", BOX, "tmpfs", libc.MS_NOSUID | libc.MS_NODEV, f"size={disk_mb}m,nr_inodes=16k,mode=755")
