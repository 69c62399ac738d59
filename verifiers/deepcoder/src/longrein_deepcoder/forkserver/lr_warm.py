"""A rehearsal in the server of what most programs do.

The interpreter's method cache and the pages that such code touches for the first time are then filled once, in the server, and not
again in every fork of it, where each page written is copied.
"""

import gc
import io
import sys

import lr_case

REHEARSAL = """
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


def up() -> None:
    """Run the rehearsal as a case some times, so that the interpreter settles, on streams of its own."""
    given = b"2\n1 2\n3 4\nb,a\nc\nd\n"
    streams = sys.stdin, sys.stdout
    code = compile(REHEARSAL, "solution.py", "exec", dont_inherit=True)
    for _ in range(3):
        sys.stdin, sys.stdout = io.TextIOWrapper(io.BytesIO(given)), io.TextIOWrapper(io.BytesIO())
        case = lr_case.Case({"kind": "stdin", "fn_name": None}, -1, {"__name__": "rehearsal"}, "", boxed=True)
        case.ending = (sys.stdout, sys.stderr, int, gc.collect, gc.get_objects)
        exec(code, case.namespace)
        case.finish()
    sys.stdin, sys.stdout = streams
    gc.collect()
