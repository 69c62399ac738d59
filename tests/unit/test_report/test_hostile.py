"""Whatever agents print is text in the page, all of it or with a word on what was cut."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.model import Action, CaseResult, Finding, Outcome, Rollout, Turn, TurnLabel
from longrein.report import write_report
from longrein.report.text import LIMIT, cut_deep
from longrein.testing.runs import TINY, make_rollout, make_task, start_run, write_run

from .conftest import Read, Viewer

HOSTILE = (
    "<script>window.owned = 1</script></script><!-- <img src=x onerror='window.owned = 1'> ]]> {{ 7*7 }}",
    "nul \0 bell \x07 \x1b[31mred\x1b[0m \x1b]0;title\x07",
    "abc\u202egnp.exe\u2066 \u2028 \u2029 \ufeff \u200b",
    "lone \ud800 surrogate \udfff",
    "x" * 5_000 + " " + "y" * 5_000,
)
surrogates = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)
plain = st.recursive(
    st.none() | st.booleans() | st.integers() | surrogates, lambda inner: st.lists(inner) | st.dictionaries(surrogates, inner), max_leaves=8
)


def saying(rollout: Rollout, text: str, message: Any = None) -> Rollout:
    """Return a rollout in which everything that an agent or a verifier can write is `text`."""
    first, *others = rollout.trajectory.turns
    said = {"role": "tool", "content": text if message is None else message, "tool_call_id": text}
    reply = {"role": "assistant", "content": text, "reasoning": text, "tool_calls": [{"function": {"name": text, "arguments": text}}]}
    call = evolve(first.call, messages=(said,), reply=reply, error=text, problem=text, requested_sampling={text: text})
    turns = (Turn(call, TurnLabel("train", text), text), *others)
    session = evolve(
        rollout.session,
        outcome=Outcome("completed", text),
        trajectory=evolve(rollout.trajectory, turns=turns),
        stdout=text,
        stderr=text,
        findings=(Finding(text, text),),
        workspace={"out.txt": text.encode("utf-8", "replace")},
    )
    verdict = evolve(rollout.verdict, reason=text, cases=(CaseResult("wrong_answer", text, text, text),), details={"x": text})
    return evolve(rollout, session=session, verdict=verdict, actions=(Action("run", text, text),))


@cache
def calm_shell() -> str:
    """Return the page around the data, as a run without anything hostile has it."""
    with tempfile.TemporaryDirectory() as place:
        return Read.of(write_report(write_run(Path(place) / "run", {"aider": TINY}, tasks=1, samples=1))).shell


@settings(max_examples=25)
@given(surrogates, plain)
def test_any_text_and_any_shape_of_message_comes_back_as_it_was(text: str, message: Any) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = write_run(Path(place) / "run", {"aider": TINY}, tasks=1, samples=1, change=lambda r: saying(r, text, message))
        page = Read.of(write_report(folder))
        detail = page.detail()
        turn = detail["turns"][0]
        assert page.values[turn["messages"][0]]["tool_call_id"] == text
        assert page.values[turn["messages"][0]]["content"] == (text if message is None else message)
        assert page.values[turn["reply"]]["content"] == text
        assert page.values[detail["stdout"]] == page.values[detail["stderr"]] == turn["reason"] == text
        assert page.values[detail["verdict"]["cases"]][0].get("got", "") == text
        assert page.shell == calm_shell()


def test_a_huge_output_is_cut_with_a_word_on_it(tmp_path: Path) -> None:
    huge = "begin " + "z" * 3_000_000 + " end"
    page = Read.of(write_report(write_run(tmp_path, {"aider": TINY}, tasks=1, samples=1, change=lambda r: saying(r, huge))))
    shown = page.values[page.detail()["stdout"]]
    assert len(shown) < LIMIT + 200
    assert shown.startswith("begin")
    assert shown.endswith("end")
    assert f"cut: {len(huge) - LIMIT:,} of {len(huge):,} characters are only in {tmp_path.name}/rollouts.jsonl" in shown
    assert len(page.text) < 1_000_000


def test_nesting_is_bounded_with_a_word_on_it() -> None:
    value: Any = "deep"
    for _ in range(300):
        value = [value]
    text = str(cut_deep(value, where="there"))
    assert "a nested list is only in there" in text
    assert "deep" not in text


def test_a_run_with_a_hostile_name_has_a_page(tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x>&\u202e"
    recorder = start_run(folder, ["aider"])
    recorder.rollout(make_rollout(make_task(1), "aider", 0, shape=TINY))
    assert "<img" not in Read.of(write_report(folder)).shell


def test_hostile_output_stays_text_in_the_browser(tmp_path: Path, viewer: Viewer) -> None:
    folder = write_run(tmp_path / "run", {"aider": TINY}, tasks=1, samples=len(HOSTILE), change=lambda r: saying(r, HOSTILE[r.sample]))
    path = write_report(folder)
    for number in range(len(HOSTILE)):
        page = viewer.open(path, f"#rollout={number}", viewport={"width": 1200, "height": 900})
        for closed in page.query_selector_all("#trace details"):
            closed.evaluate("details => { details.open = true; }")
        page.wait_for_function("[...document.querySelectorAll('#trace details')].every((details) => details.childElementCount > 1)")
        assert page.evaluate("window.owned") is None
        assert page.evaluate("document.querySelectorAll('#trace :is(script, img, iframe, object, style)').length") == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        shown = page.inner_text("#process")
        for word in (
            ("<script>window.owned = 1</script>", "{{ 7*7 }}"),
            ("nul ␀ bell ␇", "␛[31mred"),
            ("abc⟨202E⟩gnp.exe⟨2066⟩ ⟨2028⟩",),
            ("lone ⟨D800⟩",),
            ("yyyyy",),
        )[number]:
            assert word in shown


def test_markup_that_got_into_the_page_could_not_run_or_load(run_folder: Path, viewer: Viewer) -> None:
    page = viewer.open(write_report(run_folder))
    page.evaluate(
        """() => { const hole = document.createElement("div"); document.body.append(hole);
        hole.innerHTML = "<img src='https://example.org/x.png' onerror='window.owned = 1'>";
        const script = document.createElement("script"); script.textContent = "window.owned = 1"; hole.append(script); }"""
    )
    page.wait_for_timeout(100)
    assert page.evaluate("window.owned") is None
    assert any("Content Security Policy" in line for line in viewer.trouble)
    viewer.trouble.clear()
