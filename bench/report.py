"""How large the report of 2,000 rollouts is, how long it takes to make and to open.

    python bench/report.py [--runs 9]

Half of the rollouts have three calls with prompts of 8,000 tokens and more, as opencode's. A page counts as open when it can be
filtered, in headless Chromium from a new browser context. Prints medians and whether each bound holds; exits 1 if one does not.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from longrein.report import write_report
from longrein.testing.runs import LARGE, SMALL, write_run

BUILD_S, OPEN_S, SIZE_MB, ROLLOUT_S = 30.0, 2.0, 60.0, 1.0


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return the wall and CPU seconds that `work` takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def opened(browser: Browser, url: str) -> tuple[float, float]:
    """Return the seconds until a page can be used, and until a rollout of it is shown then."""
    context = browser.new_context()
    page = context.new_page()
    page.goto("about:blank")
    started = time.perf_counter()
    page.goto(url)
    page.wait_for_selector("html[data-ready]")
    ready = time.perf_counter()
    page.keyboard.press("j")
    page.wait_for_selector("#trace .turn")
    shown = time.perf_counter()
    context.close()
    return ready - started, shown - ready


def report(name: str, value: float, bound: float, unit: str) -> bool:
    """Print one figure and return whether its bound holds."""
    holds = value <= bound
    print(f"{name:34} {value:7.2f} {unit:3} bound {bound:5.1f}  {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    return holds


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="times that each is measured (default 9)")
    parser.add_argument("--tasks", type=int, default=250, help="tasks, each run 4 times by 2 agents (default 250)")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("chromium is not on PATH (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as place:
        folder = write_run(Path(place) / "run", {"opencode": LARGE, "aider": SMALL}, tasks=options.tasks, samples=4)
        print(f"rollouts.jsonl: {(folder / 'rollouts.jsonl').stat().st_size / 1e6:.0f} MB", flush=True)
        built = [seconds(lambda: write_report(folder)) for _ in range(options.runs)]
        path = folder / "report.html"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
            times = [opened(browser, path.as_uri()) for _ in range(options.runs)]
            browser.close()
        wall, cpu = (statistics.median(column) for column in zip(*built, strict=True))
        ready, shown = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"CPU seconds to build: {cpu:.2f}")
        results = [
            report(f"build of {8 * options.tasks:,} rollouts", wall, BUILD_S, "s"),
            report("size", path.stat().st_size / 1e6, SIZE_MB, "MB"),
            report("open until it can be filtered", ready, OPEN_S, "s"),
            report("then a rollout", shown, ROLLOUT_S, "s"),
        ]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
