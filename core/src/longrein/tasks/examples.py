"""Workspace files for a task's public examples, and a script that checks a solution against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve

from longrein.model import Example, PublicTask

CHECK = "examples/check.py"

_SCRIPT = '''"""Runs solution.py on the public examples; exits 0 when all pass."""
import json
import pathlib
import subprocess
import sys

FN_NAME = {fn_name!r}
MODE = {compare!r}
CALL = """
import json, sys
sys.path.insert(0, ".")
import solution
def keys(table):
    return {int(k): v for k, v in table.items()} if all(k.lstrip("-").isdigit() for k in table) else table
name, arguments = json.load(sys.stdin, object_hook=keys)
function = getattr(solution, name, None) or getattr(solution.Solution(), name)
value = function(*arguments)
sys.__stdout__.flush()
print("\\\\n" + json.dumps(value, default=lambda o: o.tolist()))
"""


def parts(text):
    if MODE == "tokens":
        return text.split()
    rows = "\\n".join(line.rstrip() for line in text.splitlines()).rstrip("\\n")
    return rows.replace("\\n", " \\n ").split(" ") if MODE == "float" else [rows.lower() if MODE == "icase" else rows]


def close(got, want):
    if MODE == "float" and isinstance(want, (str, float)) and str(want).strip("-").replace(".", "", 1).isdigit() and "." in str(want):
        try:
            return abs(float(got) - float(want)) <= 1e-6 * max(1, abs(float(want)))
        except (TypeError, ValueError):
            return False
    if isinstance(want, list) and isinstance(got, list):
        return len(got) == len(want) and all(map(close, got, want))
    return got == want


def run(given):
    if FN_NAME is None:
        return [sys.executable, "solution.py"], given
    return [sys.executable, "-c", CALL], json.dumps([FN_NAME, json.loads(given)])


def check(given, expected):
    command, stdin = run(given.read_text())
    try:
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, errors="replace", timeout=10)
    except subprocess.TimeoutExpired:
        return "no answer after 10 seconds"
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["exit code " + str(done.returncode)])[-1][:200]
    want, got = expected.read_text(), done.stdout
    if FN_NAME is not None:
        got = (got.rstrip().splitlines() or ["null"])[-1]
    pair = (json.loads(got), json.loads(want)) if FN_NAME is not None else (parts(got), parts(want))
    return "" if close(*pair) else "expected " + repr(want.rstrip()[:100]) + ", got " + repr(got.rstrip()[:100])


failed = 0
for given in sorted(pathlib.Path(__file__).parent.glob("*.in")):
    problem = check(given, given.with_suffix(".out"))
    failed += bool(problem)
    print("example", given.stem + ":", problem or "ok")
sys.exit(1 if failed else 0)
'''


def with_examples(task: PublicTask, *, fn_name: str | None = None, compare: str = "lines") -> PublicTask:
    """Return `task` with its examples as files and a check script that agents run as their test command.

    Args:
        task: a task with `examples`; without any it is returned as it is.
        compare: lines, float, tokens or icase, as the verifier will compare.
        fn_name: for tasks that ask for a function: its name; the examples then hold JSON (arguments, value).
    """
    if not task.examples:
        return task
    script = _SCRIPT.replace("{fn_name!r}", repr(fn_name)).replace("{compare!r}", repr(compare))
    files = {**task.files, **example_files(task.examples), CHECK: script}
    return evolve(task, files=files, check=CHECK)


def example_files(examples: Sequence[Example]) -> Mapping[str, str]:
    """Return path to text: examples/1.in, examples/1.out, ..."""
    files = {}
    for number, example in enumerate(examples, start=1):
        files[f"examples/{number}.in"] = example.stdin
        files[f"examples/{number}.out"] = example.stdout
    return files
