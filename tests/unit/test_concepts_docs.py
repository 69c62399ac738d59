"""docs/concepts.md and CONTRIBUTING.md name what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from longrein.model import GRADED, LABELS, OUTCOMES

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[str]:
    """Return the first cells of the table below a heading."""
    return re.findall(r"^\| (`.*?) \|", DOC.split(f"## {heading}\n")[1].split("\n## ")[0], re.MULTILINE)


def test_every_label_and_outcome_is_explained() -> None:
    assert [row.strip("`") for row in rows("Labels")] == list(LABELS)
    graded, unscorable = (set(re.findall(r"`(\w+)`", row)) for row in rows("Outcomes"))
    assert graded == GRADED
    assert unscorable == set(OUTCOMES) - GRADED


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "docs/concepts.md", "docs/hooks.md", "docs/configuration.md"])
def test_every_link_leads_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).is_file(), f"{name} links to {target}"


def test_the_map_of_the_core_is_whole() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    core = ROOT / "core" / "src" / "longrein"
    for named in re.findall(r"`([a-z_]+(?:/|\.py))`", text.split("| folder in")[1].split("## Rules")[0]):
        assert (core / named).exists(), f"CONTRIBUTING.md names {named}"
