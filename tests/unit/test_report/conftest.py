"""What the report's tests share: pages read back in Python, and a browser to open them in."""

from __future__ import annotations

import base64
import json
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from playwright.sync_api import Browser, Page, expect, sync_playwright

from longrein.testing.runs import TINY, write_run

expect.set_options(timeout=30_000)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
BLOCK = re.compile(r'<script type="text/plain" class="(block|index)">([^<]*)</script>')


@define
class Read:
    """A page as its script reads it."""

    text: str
    index: dict[str, Any]
    values: list[Any]

    @classmethod
    def of(cls, path: Path) -> Read:
        """Read a page."""
        text = path.read_text(encoding="utf-8")
        blocks = {"block": list[Any](), "index": list[Any]()}
        for name, packed in BLOCK.findall(text):
            blocks[name].append(json.loads(zlib.decompress(base64.b64decode(packed), -zlib.MAX_WBITS)))
        (index,) = blocks["index"]
        return cls(text, index, [value for block in blocks["block"] for value in block])

    @property
    def shell(self) -> str:
        """The page without its data."""
        return BLOCK.sub("", self.text)

    def detail(self, number: int = 0) -> dict[str, Any]:
        """Return everything on a rollout but its line in the index."""
        found: dict[str, Any] = self.values[self.index["rollouts"][number]["detail"]]
        return found


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A finished run of two agents on three tasks, twice each."""
    return write_run(tmp_path / "run", {"aider": TINY, "opencode": TINY}, tasks=3, samples=2)


@define
class Viewer:
    """Opens pages and notes what a page must never do."""

    browser: Browser
    trouble: list[str] = field(factory=list)
    """Console errors, exceptions and requests for anything but the page itself."""

    def open(self, path: Path, address: str = "", **context: Any) -> Page:
        """Open a page at an address within it and wait until it can be used."""
        page = self.browser.new_context(**context).new_page()
        page.set_default_timeout(30_000)
        url = path.resolve().as_uri()
        page.on("console", lambda message: self.trouble.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.trouble.append(str(error)))
        page.on("request", lambda request: None if request.url.partition("#")[0] == url else self.trouble.append(request.url))
        page.goto(url + address)
        page.wait_for_selector("html[data-ready]")
        return page


@pytest.fixture(scope="module")  # no longer: while Playwright runs, asyncio counts a loop as running in this thread
def chromium() -> Iterator[Browser]:
    """A headless Chromium."""
    if CHROMIUM is None:
        pytest.fail("the report's tests need Chromium (Debian: apt-get install chromium); it is not on PATH")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])  # CI runs as root
        yield browser
        browser.close()


@pytest.fixture
def viewer(chromium: Browser) -> Iterator[Viewer]:
    """A browser; a test fails when one of its pages logs an error or asks for anything but itself."""
    viewer = Viewer(chromium)
    yield viewer
    for context in chromium.contexts:
        context.close()
    assert not viewer.trouble
