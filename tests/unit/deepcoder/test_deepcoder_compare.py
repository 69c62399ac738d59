"""Compare mode `lines`: permitted noise never matters, everything else does."""

from __future__ import annotations

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


@given(st.data(), texts.filter(any))
def test_any_single_change_fails(data: st.DataObject, rows: list[str]) -> None:
    text = "\n".join(rows)
    at = data.draw(st.integers(0, len(text.rstrip()) - 1)) if text.rstrip() else 0
    letter = data.draw(st.characters(exclude_categories=["Cs"], exclude_characters=" \t\r\n"))
    assert not same("lines", (text[:at] + letter + text[at:]).encode(), text.encode()) or text[:at] + letter + text[at:] == text


@given(st.integers(-(10**18), 10**18), st.integers(-(10**18), 10**18))
def test_float_mode_grants_nothing_to_whole_numbers(got: int, expected: int) -> None:
    assert same("float", str(got).encode(), str(expected).encode()) == (got == expected)


@given(st.floats(allow_nan=False, allow_infinity=False, width=32), st.floats(-1e-7, 1e-7))
def test_float_mode_grants_a_relative_error(value: float, error: float) -> None:
    got = value + error * max(1.0, abs(value))
    assert same("float", f"x {got!r}".encode(), f"x {float(value)!r}".encode())
    assert not same("float", f"x {value + 1e-4 * max(1.0, abs(value))!r}".encode(), f"x {float(value)!r}".encode())
