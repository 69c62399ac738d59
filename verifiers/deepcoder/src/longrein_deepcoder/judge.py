"""From what a case left behind to its result. Status comes before output; equality is decided here, on plain data."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from longrein.model import CaseResult
from longrein_deepcoder.compare import Mode, lines, numbers_close, same
from longrein_deepcoder.forked import Limits, Run
from longrein_deepcoder.rows import load_json

EXCERPT = 200


def judge(run: Run, expected: Any, mode: Mode, limits: Limits) -> CaseResult:
    """Return the result of one case.

    Args:
        expected: the text that should have been printed, or the value that the call should have returned.
        mode: the row's compare mode.
        limits: the limits that the case ran under.
    """
    status, detail = _status(run, limits)
    got = run.stdout if run.result is None else run.result
    if not status:
        right, detail = _printed(got, expected, mode) if run.result is None else _returned(got, expected, mode)
        status = "passed" if right else "wrong_answer"
    wanted = expected if run.result is None else _shown(expected)
    return CaseResult(
        status,
        detail,
        got=_excerpt(got),
        expected=_excerpt(wanted.encode("utf-8", "surrogatepass")),
        cpu_s=round(run.cpu_s, 4),
        wall_s=round(run.wall_s, 4),
    )


def _status(run: Run, limits: Limits) -> tuple[str, str]:
    """Return the failing status and its detail, or two empty strings when the output decides."""
    last = _last_line(run.stderr)
    most = limits.output_kb << 10
    if run.ended_by == "memory" or run.memory_mb > limits.memory_mb:
        return "memory_limit", f"more than {limits.memory_mb} MB"
    if max(len(run.stdout), len(run.stderr), len(run.result or b"")) >= most:
        return "output_limit", f"more than {limits.output_kb} kB"
    if run.ended_by == "wall":
        return "timeout", f"more than {limits.wall_s:g} s of wall time"
    if run.ended_by == "cpu" or run.cpu_s > limits.cpu_s:
        return "timeout", f"more than {limits.cpu_s:g} s of CPU time"
    if not run.compiled:
        return "compile_error", last
    if run.exit_code and last.startswith("MemoryError"):
        return "memory_limit", last
    if run.exit_code < 0:
        return "runtime_error", f"killed by signal {-run.exit_code}"
    if run.exit_code:
        return "runtime_error", last or f"exit code {run.exit_code}"
    if run.result == b"":
        return "runtime_error", "ended before the function returned"
    return "", ""


def _printed(got: bytes, expected: str, mode: Mode) -> tuple[bool, str]:
    wanted = expected.encode("utf-8", "surrogatepass")
    if same(mode, got, wanted):
        return True, ""
    pairs = enumerate(zip_longest(lines(got), lines(wanted)), start=1)
    first = next((number for number, (ours, theirs) in pairs if ours != theirs), 1)
    return False, f"first difference in line {first}"


def _returned(got: bytes, expected: Any, mode: Mode) -> tuple[bool, str]:
    if got.startswith(b"!"):
        return False, f"the returned value is not plain data: {_excerpt(got[1:])}"
    try:
        value = load_json(got.decode("utf-8", "surrogatepass"))
        return equal(value, _as_json(expected), tolerant=mode == "float"), ""
    except (ValueError, RecursionError) as error:
        return False, f"the returned value cannot be read: {type(error).__name__}"


def equal(got: Any, expected: Any, *, tolerant: bool) -> bool:
    """Compare plain data as Python does; with `tolerant` an expected float grants a tolerance."""
    if isinstance(expected, list):
        same_length = isinstance(got, list) and len(got) == len(expected)
        return same_length and all(equal(ours, theirs, tolerant=tolerant) for ours, theirs in zip(got, expected, strict=True))
    if isinstance(expected, dict):
        same_keys = isinstance(got, dict) and got.keys() == expected.keys()
        return same_keys and all(equal(got[key], value, tolerant=tolerant) for key, value in expected.items())
    if tolerant and isinstance(expected, float) and isinstance(got, (int, float)) and got != expected:
        try:
            return numbers_close(float(got), expected)
        except OverflowError:
            return False
    if isinstance(got, (int, float, Decimal)) != isinstance(expected, (int, float, Decimal)):
        return False
    return bool(got == expected)


def _as_json(value: Any) -> Any:
    """Return plain data as JSON would give it back: keys are text."""
    if isinstance(value, dict):
        return {str(key): _as_json(item) for key, item in value.items()}
    return [_as_json(item) for item in value] if isinstance(value, (list, tuple)) else value


def _shown(value: Any) -> str:
    try:
        return json.dumps(value, default=str)
    except ValueError:
        return "a value with a very long number"


def _last_line(stderr: bytes) -> str:
    rows = stderr[-2000:].decode("utf-8", "replace").strip().splitlines()
    return rows[-1][:EXCERPT] if rows else ""


def _excerpt(text: bytes) -> str:
    """Return the start of untrusted bytes as printable text."""
    shown = text[:EXCERPT].decode("utf-8", "replace")
    if not shown.replace("\n", "").isprintable():
        shown = "".join(letter if letter.isprintable() or letter in "\n\t" else "\N{REPLACEMENT CHARACTER}" for letter in shown)
    return shown + ("..." if len(text) > EXCERPT else "")
