"""Compare mode `lines`: permitted noise never matters, everything else does."""

from __future__ import annotations

import re

from hypothesis import assume, given
from hypothesis import strategies as st

from longrein_deepcoder.compare import lines, same

line = st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=12).map(lambda text: text.rstrip(" \t\r"))
texts = st.lists(line, max_size=6)


@st.composite
def noisy(draw: st.DrawFn, rows: list[str]) -> bytes:
    """Return `rows` as a program may print them: blanks at line ends, either line end, empty lines at the end."""
    end = draw(st.sampled_from(["\n", "\r\n"]))
    body = end.join(row + draw(st.text(" \t", max_size=3)) for row in rows)
    return (body + end * draw(st.integers(0, 3))).encode()


@given(st.data(), texts)
def test_permitted_noise_passes(data: st.DataObject, rows: list[str]) -> None:
    assert same("lines", data.draw(noisy(rows)), data.draw(noisy(rows)))


@given(st.data(), texts, texts)
def test_different_lines_fail(data: st.DataObject, rows: list[str], others: list[str]) -> None:
    assume(lines("\n".join(rows).encode()) != lines("\n".join(others).encode()))
    assert not same("lines", data.draw(noisy(others)), data.draw(noisy(rows)))


@st.composite
def changed(draw: st.DrawFn, text: str) -> str:
    """Return `text` with one change that is no permitted noise: a letter or an inner blank put in, taken out or replaced, a line more."""
    at = draw(st.integers(0, len(text)))
    letter = draw(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n"))
    kind = draw(st.sampled_from(["in", "out", "other", "blank", "line", "case", "swap"]))
    rows = text.split("\n")
    if kind == "swap":
        one, two = draw(st.integers(0, len(rows) - 1)), draw(st.integers(0, len(rows) - 1))
        rows[one], rows[two] = rows[two], rows[one]
        return "\n".join(rows)
    put = {"in": letter, "out": "", "other": letter, "blank": " ", "line": "\n", "case": text[at : at + 1].swapcase()}[kind]
    return text[:at] + put + text[at + (kind in ("out", "other", "case")) :]


def seen(text: str) -> list[str]:
    """Return what must be equal, written down apart from the code: lines without blanks at their end, empty ones at the end dropped."""
    rows = [re.sub(r"[ \t\r]+\Z", "", row) for row in text.split("\n")]
    while rows and rows[-1] == "":
        del rows[-1]
    return rows


@given(st.data(), texts)
def test_any_other_change_fails(data: st.DataObject, rows: list[str]) -> None:
    text = "\n".join(rows)
    other = data.draw(changed(text))
    assert same("lines", other.encode(), text.encode()) == (seen(other) == seen(text))
    assert same("lines", text.encode(), other.encode()) == (seen(other) == seen(text))


@given(st.data(), texts, texts)
def test_noise_hides_no_difference(data: st.DataObject, rows: list[str], others: list[str]) -> None:
    got, wanted = data.draw(noisy(others)), data.draw(noisy(rows))
    assert same("lines", got, wanted) == (seen("\n".join(others)) == seen("\n".join(rows)))


@given(st.integers(-(10**18), 10**18), st.integers(-(10**18), 10**18))
def test_float_mode_grants_nothing_to_whole_numbers(got: int, expected: int) -> None:
    assert same("float", str(got).encode(), str(expected).encode()) == (got == expected)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32), st.floats(-1e-7, 1e-7))
def test_float_mode_grants_a_relative_error(value: float, error: float) -> None:
    got = value + error * max(1.0, abs(value))
    assert same("float", f"x {got!r}".encode(), f"x {float(value)!r}".encode())
    assert not same("float", f"x {value + 1e-4 * max(1.0, abs(value))!r}".encode(), f"x {float(value)!r}".encode())
