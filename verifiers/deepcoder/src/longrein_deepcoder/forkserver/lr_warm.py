"""A rehearsal in the server of what most programs do.

The interpreter's method cache and the pages that such code touches for the first time are then filled once, in the server, and not
again in every fork of it, where each page written is copied.
"""

from __future__ import annotations

import _socket
import marshal
import os
import sys

import lr_case
import lr_init
import lr_libc as libc
import lr_pack
import lr_wire as wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

REHEARSAL = b"""
import sys
n = int(input())
rows = [list(map(int, input().split())) for _ in range(n)]
words = sys.stdin.readline().strip().split(",")
rest = sys.stdin.read().splitlines()
table = {word: index for index, word in enumerate(sorted(words))}
table["x"] = table.get("x", 0) + 1
seen = set()
seen.add((1, "a"))
class Point:
    def __init__(self, x=0, *more, **named):
        self.x = x
    def move(self, by):
        self.x += by
        return self
def total(values, start=0):
    for value in values:
        start = max(start, value) + min(1, value) % 7 // 2
    return start
try:
    rows[9].append(rows.pop())
except IndexError as error:
    rows.append([len(str(error)), abs(-1)])
rows.sort(key=lambda row: row[-1], reverse=True)
print(sum(total(row) for row in rows), *zip(words, reversed(words)), sep=" ", end="\\n")
print(f"{Point(2).move(3).x:.2f}", " ".join(map(str, rows[0])), "yes" if "x" in table and seen else "no")
sys.stdout.write("".join([chr(ord("a") + 1), str(2 ** 70 / 3), repr(rest)]) + "\\n")
"""

LITTLE = bytearray(marshal.dumps(compile("for word in input().split():\n    print(int(word))\n", "solution.py", "exec")))
"""A program that does what hardly any leaves out."""
ROUNDS = 4
GIVEN = b"2\n1 2\n3 4\nb,a\nc\nd\n"


def up(folder: str, limits: dict[str, Any]) -> None:
    """Play an init and its cases some times, until the interpreter has settled.

    Args:
        folder: made for the rehearsal and removed after it.
        limits: of a case.
    """
    main, argv, path, streams = sys.modules["__main__"], sys.argv[:], sys.path[:], (sys.stdin, sys.stdout)
    standard = [os.dup(number) for number in range(3)]
    os.mkdir(folder)
    try:
        _rehearse(folder, limits)
    finally:
        for number, fd in enumerate(standard):
            os.dup2(fd, number)
            os.close(fd)
        sys.modules["__main__"], sys.argv[:], sys.path[:], (sys.stdin, sys.stdout) = main, argv, path, streams
        os.chdir("/")
        lr_init.remove(folder)


def _rehearse(folder: str, limits: dict[str, Any]) -> None:
    ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    program = lr_pack.pack({"solution.py": REHEARSAL}, kind="stdin", fn_name=None, folder=folder)
    code = os.memfd_create("code", os.MFD_ALLOW_SEALING)
    init = lr_init.Init(limits, folder, boxed=False)
    init.control = theirs
    init.load(_file(program), os.dup(code), frozenset(sys.modules))
    for _ in range(ROUNDS):
        os.dup2(code, lr_case.CODE)
        fds = make_streams()
        wire.send(ours, b"case", tuple(fds))
        init.take_case()
        if (pid := libc.fork()) == 0:
            os._exit(0)
        init.watch(pid)
        wire.receive(ours)
        sys.stdin, sys.stdout = open(fds[0], closefd=False), open(fds[1], "w", closefd=False)
        _stay(init.case)
        init.case.enter()
        exec(init.case.take_code(), init.case.namespace)
        init.case.finish()
        for fd in fds:
            os.close(fd)
    os.close(code)
    os.close(lr_case.CODE)


def _stay(case: lr_case.Case) -> None:
    """Have a case leave this process as it is."""
    case.entering[0] = (os.closerange, (lr_case.CODE, lr_case.CODE))
    case.find_ending()
    case.ending = (*case.ending[:-1], int)


def make_streams() -> list[int]:
    """Return descriptors of the standard streams that a rehearsed case has."""
    return [_file(GIVEN), _file(b""), _file(b"")]


def make_scout(program: lr_case.Case, fds: list[int]) -> Callable[[], None]:
    """Return what runs LITTLE in the place of a program's case.

    Args:
        fds: its standard streams, which become those of this process.
    """
    for number, fd in enumerate(fds):
        os.dup2(fd, number)
    case = lr_case.Case({"kind": "stdin", "fn_name": None}, program.namespace, "/", [])
    case.compiled = LITTLE
    _stay(case)

    def play() -> None:
        case.enter()
        exec(case.take_code(), case.namespace)
        case.finish()

    return play


def _file(content: bytes) -> int:
    fd = os.memfd_create("rehearsal")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
