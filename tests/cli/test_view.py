"""`longrein view` as a person uses it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_commands import longrein

from longrein.testing.runs import TINY, write_run


def test_view_writes_the_page_of_a_run_and_names_it(tmp_path: Path) -> None:
    run, page = write_run(tmp_path / "run", {"aider": TINY}, tasks=1, samples=1), tmp_path / "page.html"
    done = longrein("view", run, "--out", page, "--no-open")
    assert done.stdout == ""
    assert done.stderr == f"wrote {page} (0.1 MB)\n"
    assert page.read_text().startswith("<!doctype html>")


def test_view_of_a_folder_without_a_run_says_what_to_give(tmp_path: Path) -> None:
    done = longrein("view", tmp_path / "none", code=1)
    assert "none does not exist" in done.stderr
    assert "Give the folder that run, compare or train named when it ended" in done.stderr
