"""`longrein view` on a real run."""

from __future__ import annotations

from pathlib import Path

from tests.cli.test_commands import longrein
from tests.unit.test_report.conftest import Read


def test_view_writes_the_page_of_a_run_and_names_it(tmp_path: Path) -> None:
    run, page = tmp_path / "run", tmp_path / "page.html"
    longrein("run", "--agent", "nop", "--agent", "oracle", "--taskset", "practice", "--limit", "2", "--out", run)
    done = longrein("view", run, "--out", page, "--no-open")
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].replace("\n", "").startswith(f"wrote {page} (")
    read = Read.of(page)
    by_agent = {line["agent"]: read.values[line["detail"]] for line in read.index["rollouts"]}
    changes = {
        agent: {change["path"]: change["change"] for change in read.values[detail["files"]["list"]]} for agent, detail in by_agent.items()
    }
    assert set(changes["nop"].values()) == {"same"}
    assert changes["oracle"].pop("solution.py") == "added"
    assert set(changes["oracle"].values()) == {"same"}
    assert all(detail["files"]["start_known"] and "Write the program" in read.values[detail["prompt"]] for detail in by_agent.values())


def test_view_of_a_folder_without_a_run_says_what_to_give(tmp_path: Path) -> None:
    done = longrein("view", tmp_path / "none", code=1)
    assert "none does not exist" in done.stderr
    assert "Give the folder that run, compare or train named when it ended" in done.stderr
