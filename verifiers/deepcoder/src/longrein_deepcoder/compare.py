"""Compare modes: whether what a program printed counts as what was expected."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Literal, get_args

Mode = Literal["lines", "float", "tokens", "icase"]
MODES: tuple[Mode, ...] = get_args(Mode)
TOLERANCE = 1e-6
"""Absolute for magnitudes up to 1, relative beyond."""

_DECIMAL = re.compile(rb"[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?|[+-]?\d+[eE][+-]?\d+")
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_BLANKS = re.compile(rb"([ \t]+)")


def same(mode: Mode, got: bytes, expected: bytes) -> bool:
    """Return whether `got` passes for `expected`.

    Trailing blanks of a line, line ends and trailing empty lines never matter. Beyond that `lines` wants equality; `float`
    applies a tolerance to tokens whose expected text has a decimal point or an exponent; `icase` ignores case; `tokens` compares
    the words and ignores how they are laid out.
    """
    return got == expected or _COMPARE[mode](got, expected)


def lines(text: bytes) -> list[bytes]:
    """Split into lines without what never matters."""
    found = [line.rstrip(b" \t\r") for line in text.split(b"\n")]
    while found and not found[-1]:
        found.pop()
    return found


def _lines(got: bytes, expected: bytes) -> bool:
    return lines(got) == lines(expected)


def _icase(got: bytes, expected: bytes) -> bool:
    return _fold(got) == _fold(expected)


def _fold(text: bytes) -> list[str]:
    return [line.decode("utf-8", "surrogateescape").casefold() for line in lines(text)]


def _tokens(got: bytes, expected: bytes) -> bool:
    return got.split() == expected.split()


def _float(got: bytes, expected: bytes) -> bool:
    got_lines, expected_lines = lines(got), lines(expected)
    return len(got_lines) == len(expected_lines) and all(map(_float_line, got_lines, expected_lines))


def _float_line(got: bytes, expected: bytes) -> bool:
    got_parts, expected_parts = _BLANKS.split(got), _BLANKS.split(expected)
    return len(got_parts) == len(expected_parts) and all(map(_close, got_parts, expected_parts))


def _close(got: bytes, expected: bytes) -> bool:
    if got == expected:
        return True
    if not (_DECIMAL.fullmatch(expected) and _NUMBER.fullmatch(got)):
        return False
    return numbers_close(float(got), float(expected))


def numbers_close(got: float, expected: float) -> bool:
    """Return whether two finite numbers differ by at most the tolerance."""
    return math.isfinite(got) and abs(got - expected) <= TOLERANCE * max(1.0, abs(expected))


_COMPARE: Mapping[str, Callable[[bytes, bytes], bool]] = {"lines": _lines, "float": _float, "tokens": _tokens, "icase": _icase}
