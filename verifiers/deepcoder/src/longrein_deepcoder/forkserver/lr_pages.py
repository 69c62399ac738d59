"""Where the server's memory lies, so that a fork of it costs little: a fork copies areas and page tables, and then each page it writes.

None of it changes what a program sees, and each part is left out where the system does not allow it.
"""

from __future__ import annotations

import ctypes
import os

import lr_libc as libc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SIZE = os.sysconf("SC_PAGE_SIZE")
HUGE = 2 << 20
_PRESENT, _EXCLUSIVE = 1 << 63, 1 << 56
_SETUP, _REGISTER = 425, 427  # io_uring's, of every kind of machine
_REGISTER_BUFFERS = 0
_PARAMETER_BYTES = 120
_MOST_BUFFERS = 1024
_APART = 1 << 18
"""Bytes that the C library takes from the system alone, so that writing them writes no page of an area."""


def lay_out_code() -> None:
    """Join the areas of each library, and move the interpreter's code to huge pages, which a fork need not fault in again."""
    if os.uname().machine != "x86_64":
        return  # tried nowhere else
    for areas in list(_libraries()):
        *code, relocated, data = areas
        try:
            libc.protect(relocated[0], data[1], libc.READ | libc.WRITE)
            if code:
                libc.protect(code[0][0], code[-1][1], libc.READ | libc.EXECUTE)
                _make_huge(-(-code[0][0] // HUGE) * HUGE, code[-1][1] // HUGE * HUGE)
        except OSError:
            continue


def _make_huge(start: int, end: int) -> None:
    """Put a copy in huge pages in the place of code, in one step."""
    if start >= end:
        return
    room = libc.map_memory(end - start + HUGE)
    new = -(-room // HUGE) * HUGE
    try:
        ctypes.memmove(new, start, end - start)
        libc.collapse(new, end - start)
        libc.protect(new, new + end - start, libc.READ | libc.EXECUTE)
        libc.move(new, end - start, start)
    finally:
        libc.unmap(room, end - start + HUGE)


def _libraries() -> Iterator[list[tuple[int, int]]]:
    """Yield the neighbouring areas of each mapped file that ends in two areas of data, the first of them read-only after relocation."""
    areas: list[tuple[int, int]] = []
    modes: list[str] = []
    last = ""
    for start, end, mode, name in [*_areas(), (0, 0, "", "")]:
        if areas and (start != areas[-1][1] or name != last):
            if modes[-2:] == ["r--p", "rw-p"] and set(modes[:-2]) <= {"r--p", "r-xp"}:
                yield areas
            areas, modes = [], []
        if name.startswith("/"):
            areas.append((start, end))
            modes.append(mode)
        last = name


def writable() -> list[tuple[int, int]]:
    """Return start and end of this process's private, writable areas."""
    return [(start, end) for start, end, mode, _ in _areas() if mode == "rw-p"]


def _areas() -> list[tuple[int, int, str, str]]:
    """Return start, end, mode and name of this process's areas."""
    found = []
    with open("/proc/self/maps") as file:
        for line in file:
            span, mode, _, _, _, *name = line.rstrip("\n").split(maxsplit=5)
            start, end = span.split("-")
            found.append((int(start, 16), int(end, 16), mode, "".join(name)))
    return found


def make_ring() -> int:
    """Return a descriptor that pages can be pinned with, -1 where the system gives none."""
    return libc.syscall(_SETUP, 1, ctypes.create_string_buffer(_PARAMETER_BYTES))


def pin(ring: int, pages: list[int]) -> None:
    """Pin pages of this memory until the last descriptor of `ring` is closed, if there is so much locked memory to be had.

    What is pinned, as if a device wrote to it, is copied when a process forks (dup_mmap in the kernel's source): for half of what the
    fault at the first write costs, and this process does not fault at its own next write.
    """
    vector = b"".join([address.to_bytes(8, "little") + size.to_bytes(8, "little") for address, size in _ranges(pages)[:_MOST_BUFFERS]])
    libc.syscall(_REGISTER, ring, _REGISTER_BUFFERS, vector, len(vector) // 16)


def _ranges(pages: list[int]) -> list[tuple[int, int]]:
    """Return address and length of runs of neighbouring pages."""
    found: list[tuple[int, int]] = []
    for page in pages:
        if found and page == sum(found[-1]):
            found[-1] = found[-1][0], found[-1][1] + SIZE
        else:
            found.append((page, SIZE))
    return found


def find_written(areas: list[tuple[int, int]], play: Callable[[], None], notes: int) -> list[int]:
    """Return the addresses of pages in `areas` that a fork of this process writes while it does `play`.

    Args:
        notes: descriptor of a file to write to.
    """
    pages = [page for start, end in areas for page in range(start, end, SIZE)]
    flags = memoryview(bytearray(max(len(pages) * 8, _APART)))
    looks, at = [], 0
    for start, end in areas:
        size = (end - start) // SIZE * 8
        looks.append(([flags[at : at + size]], start // SIZE * 8))
        at += size
    libc.prctl(libc.PR_SET_DUMPABLE, 1)  # else the fork may not open the file
    if (pid := libc.fork()) == 0:
        try:
            play()
            pagemap = os.open("/proc/self/pagemap", os.O_RDONLY)
            for views, offset in looks:
                os.preadv(pagemap, views, offset)
            os.pwrite(notes, flags[:at], 0)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    libc.prctl(libc.PR_SET_DUMPABLE, 0)
    told = memoryview(os.pread(notes, at, 0)).cast("Q")
    return [page for page, flag in zip(pages, told) if flag & _PRESENT and flag & _EXCLUSIVE]  # noqa: B905
