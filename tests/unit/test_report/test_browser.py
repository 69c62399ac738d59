"""The report in a real browser: filters, keys, themes, a phone."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from playwright.sync_api import Page, expect

from longrein.comparison import ComparedPolicy, compare_rollouts, write_comparison
from longrein.model import Rollout, TurnLabel
from longrein.report import store, write_report
from longrein.rollout.record import read_rollouts, read_workspace
from longrein.testing.runs import TINY, make_rollout, make_task, start_run, unscorable, write_run

from .conftest import Viewer


def shown(page: Page) -> int | None:
    """Return the number of the rollout that is open, or None on the overview."""
    address: str = page.evaluate("document.documentElement.dataset.shown")
    return int(address.removeprefix("rollout ")) if address.startswith("rollout") else None


def wait_for(page: Page, what: str) -> None:
    """Wait until the page shows a rollout ("rollout 3") or the overview."""
    page.wait_for_selector(f'html[data-shown="{what}"]')


def test_open_filter_and_read_a_rollout(run_folder: Path, viewer: Viewer) -> None:
    made = list(read_rollouts(run_folder))
    page = viewer.open(write_report(run_folder))
    expect(page.get_by_role("heading", name="Tasks by agents")).to_be_visible()
    expect(page.locator(".selected")).to_contain_text("12 of 12 rollouts")
    expect(page.get_by_role("img", name="Pass rate of each agent")).to_be_visible()
    page.get_by_role("combobox", name="Agent").select_option("aider")
    expect(page.locator(".selected")).to_contain_text("6 of 12 rollouts")
    expect(page.locator("table.rollouts tbody tr")).to_have_count(6)
    page.get_by_role("searchbox").fill("sum-0001")
    expect(page.locator(".selected")).to_contain_text("2 of 12 rollouts")
    page.locator(".matrix .cell").last.click()
    page.wait_for_selector("#trace .turn")
    rollout = made[shown(page) or 0]
    assert (rollout.agent, rollout.task_id) == ("aider", "sum-0001")
    text = page.inner_text("#trace")
    for turn in rollout.trajectory.turns:
        assert turn.label.reason in text
        assert turn.call.reply["content"].split("\n")[0] in text
    program = read_workspace(run_folder, rollout.id)["solution.py"].decode()
    assert program.split("\n")[1] in page.inner_text("#workspace")
    page.go_back()
    wait_for(page, "overview")
    expect(page.locator(".selected")).to_contain_text("2 of 12 rollouts")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(".selected")).to_contain_text("12 of 12 rollouts")


def test_filters_of_verdict_outcome_and_label(tmp_path: Path, viewer: Viewer) -> None:
    def change(rollout: Rollout) -> Rollout:
        if rollout.sample == 0:
            return unscorable(rollout)
        first, *others = rollout.trajectory.turns
        turns = (evolve(first, label=TurnLabel("discarded", "the client had gone")), *others)
        return evolve(rollout, session=evolve(rollout.session, trajectory=evolve(rollout.trajectory, turns=turns)))

    page = viewer.open(write_report(write_run(tmp_path, {"aider": TINY}, tasks=2, samples=2, change=change)))
    for field, value in (("Verdict", "unscorable"), ("Outcome", "llm_error"), ("Label", "discarded")):
        page.get_by_role("combobox", name=field).select_option(value)
        expect(page.locator(".selected")).to_contain_text("2 of 4 rollouts")
        page.get_by_role("button", name="Clear").click()
    page.get_by_role("combobox", name="Verdict").select_option("unscorable")
    page.get_by_role("combobox", name="Label").select_option("discarded")
    expect(page.locator(".selection")).to_contain_text("No rollout fits the filter")


def test_a_rollout_that_loads_late_does_not_replace_the_one_asked_for_since(
    run_folder: Path, viewer: Viewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BLOCK", 1000)  # a block that only the second rollout needs
    page = viewer.open(write_report(run_folder))
    page.keyboard.press("j")
    wait_for(page, "rollout 0")
    title = page.inner_text("#trace h2")
    page.evaluate(
        """() => { const text = Response.prototype.text;
        Response.prototype.text = async function () {
          if (window.late === undefined) await new Promise((done) => { window.late = done; });
          return text.call(this);
        }; }"""
    )
    page.keyboard.press("j")
    page.wait_for_function("window.late !== undefined")
    page.keyboard.press("k")
    page.wait_for_url("**/*#*rollout=0*")
    page.evaluate("() => { window.late(); return new Promise((done) => setTimeout(done, 100)); }")  # time in which it would come
    assert (shown(page), page.inner_text("#trace h2")) == (0, title)


def test_everything_by_keyboard(run_folder: Path, viewer: Viewer) -> None:
    page = viewer.open(write_report(run_folder))
    for key, number in (("j", 0), ("j", 1), ("ArrowRight", 2), ("k", 1), ("ArrowLeft", 0), ("k", 0)):
        page.keyboard.press(key)
        wait_for(page, f"rollout {number}")
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.id") == "turn-0"
    page.keyboard.press("n")
    assert page.evaluate("document.activeElement.id") == "turn-1"
    page.keyboard.press("p")
    assert page.evaluate("document.activeElement.id") == "turn-0"
    page.keyboard.press("t")
    expect(page.locator("#trace .token.trained").first).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("next rollout")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    assert shown(page) == 0
    page.keyboard.press("Escape")
    wait_for(page, "overview")
    page.keyboard.press("/")
    page.keyboard.type("sum-0002 j")
    expect(page.get_by_role("searchbox")).to_have_value("sum-0002 j")
    page.keyboard.press("Backspace")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.wait_for_selector("#trace .turn")
    assert "sum-0002" in page.inner_text(".trace-head")


def test_tokens_show_mask_and_log_probability(tmp_path: Path, viewer: Viewer) -> None:
    def change(rollout: Rollout) -> Rollout:
        first, second = rollout.trajectory.turns
        first = evolve(first, label=TurnLabel("aux", "a title"), call=evolve(first.call, sampled_ids=[7, 8], logprobs=[-0.01, -9.0]))
        second = evolve(second, call=evolve(second.call, sampled_ids=[], logprobs=[], context_ids=[]))
        return evolve(rollout, session=evolve(rollout.session, trajectory=evolve(rollout.trajectory, turns=(first, second))))

    page = viewer.open(write_report(write_run(tmp_path, {"aider": TINY}, tasks=1, samples=1, change=change)), "#rollout=0")
    page.keyboard.press("t")
    untrained = page.locator("#turn-0 .token-text .token.untrained")
    expect(untrained).to_have_count(2)
    sure, unsure = untrained.all()
    assert "lp0" in (sure.get_attribute("class") or "")
    assert "lp6" in (unsure.get_attribute("class") or "")
    assert sure.get_attribute("title") == "id 7, sampled 0, log p -0.0100, p 0.990, not trained"
    expect(page.locator("#turn-0 .token-text .token.context")).to_have_count(40)
    expect(page.locator("#turn-1")).to_contain_text("The endpoint returned no token ids for this call")
    expect(page.locator("#turn-0")).to_contain_text("tokens are shown by id")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dark_mode_follows_the_system_and_the_button(run_folder: Path, viewer: Viewer, scheme: str) -> None:
    page = viewer.open(write_report(run_folder), color_scheme=scheme)
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = "rgb(246, 247, 248)", "rgb(18, 21, 24)"
    assert page.evaluate(ground) == (dark if scheme == "dark" else light)
    page.get_by_role("button", name="Theme: system").click()
    assert page.evaluate(ground) == light
    page.keyboard.press("d")
    assert page.evaluate(ground) == dark
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert page.evaluate(ground) == dark


def test_it_fits_a_phone(run_folder: Path, viewer: Viewer) -> None:
    path = write_report(run_folder)
    for address in ("", "#rollout=0"):
        page = viewer.open(path, address, viewport={"width": 360, "height": 740}, has_touch=True)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_comparison_shows_differences_with_a_word_on_each(tmp_path: Path, viewer: Viewer) -> None:
    folder = write_run(tmp_path, {"aider": TINY, "opencode": TINY}, tasks=7, samples=2)
    comparison = compare_rollouts(read_rollouts(folder))
    write_comparison(folder, comparison)
    page = viewer.open(write_report(folder))
    expect(page.locator("#run-name")).to_contain_text("comparison")
    (pair,) = comparison.pairs
    row = page.locator("section", has=page.get_by_role("heading", name="Differences")).locator("tbody tr")
    expect(row).to_contain_text(f"{100 * (pair.difference or 0):+.1f}")
    expect(row).to_contain_text("7")
    assert pair.conclusion in row.inner_text()


def test_a_comparison_of_policies_shows_what_transfers(tmp_path: Path, viewer: Viewer) -> None:
    recorder = start_run(tmp_path, ["aider", "opencode"])
    for number in range(2):
        for policy in ("base", "step-9"):
            for agent in ("aider", "opencode"):
                rollout = make_rollout(make_task(number), agent, 0, shape=TINY, group_id=f"run.{policy}.{agent}.{number}")
                recorder.rollout(evolve(rollout, policy=policy))
    policies = (ComparedPolicy("base", ()), ComparedPolicy("step-9", ("aider",)))
    write_comparison(tmp_path, compare_rollouts(read_rollouts(tmp_path), policies=policies))
    page = viewer.open(write_report(tmp_path))
    card = page.locator("section.card", has=page.get_by_role("heading", name="Transfer"))
    rows = [row.get_by_role("cell").all_inner_texts() for row in card.locator("tbody tr").all()]
    assert [row[:2] for row in rows] == [["base", "none"], ["step-9", "aider"]]
    assert [["trained" in cell for cell in row[2:]] for row in rows] == [[False, False], [True, False]]
    page.get_by_role("combobox", name="Policy").select_option("step-9")
    expect(page.locator(".selected")).to_contain_text("4 of 8 rollouts")


def test_a_training_run_shows_its_curves(tmp_path: Path, viewer: Viewer) -> None:
    recorder = start_run(tmp_path, ["aider"])
    task = make_task(0)
    for phase in ("eval:0", "train", "eval:2"):
        for sample in range(2):
            recorder.rollout(make_rollout(task, "aider", sample, shape=TINY, phase=phase, group_id="g000000" if phase == "train" else ""))
    ids = ["g000000.0", "g000000.1"]
    statuses, rewards = dict(zip(ids, ("passed", "failed"), strict=True)), dict(zip(ids, (1.0, 0.25), strict=True))
    group = {"id": "g000000", "number": 0, "agent": "aider", "statuses": statuses, "rewards": rewards, "advantages": {ids[1]: -1.0}}
    recorder.group({**group, "baseline": 0.6, "std": 0.4, "rows": 2, "trained_tokens": 9, "versions": [1, 1], "skipped": None})
    for step in (1, 2):
        figures = {"aider/reward": step / 2, "aider/pass_rate": step / 2, "staleness/mean": 1.0, "staleness/max": 2.0, "ratio": 1.001}
        labels = {"aider/turns/train_total": 3.0, "aider/turns/aux_total": 1.0}
        recorder.metrics({"step": step, "version": step, "canary/difference_max": 1e-6, **figures, **labels})
    page = viewer.open(write_report(tmp_path))
    for title in (
        "Before and after",
        "Reward by step",
        "Pass rate by step",
        "Pass rate by group",
        "Staleness",
        "Importance ratio",
        "Canary",
        "Labels by step",
    ):
        expect(page.get_by_role("heading", name=title, exact=True)).to_be_visible()
    card = page.locator("section.card", has=page.get_by_role("heading", name="Labels by step"))
    card.get_by_text("Numbers").click()
    expect(card.get_by_role("row")).to_have_count(5)
    rows = [row.split("\t")[:3] for row in card.get_by_role("row").all_inner_texts()[1:]]
    assert rows == [["train", "1", "75.0 %"], ["train", "2", "75.0 %"], ["aux", "1", "25.0 %"], ["aux", "2", "25.0 %"]]
    page.goto(page.url.partition("#")[0] + "#rollout=3")
    wait_for(page, "rollout 3")
    expect(page.locator(".about")).to_contain_text("0.250")
    expect(page.locator(".about")).to_contain_text("advantage -1.000, baseline 0.600")


def test_a_run_that_has_just_begun_says_so(tmp_path: Path, viewer: Viewer) -> None:
    start_run(tmp_path, ["aider"])
    page = viewer.open(write_report(tmp_path))
    expect(page.locator("#overview")).to_contain_text("No rollout has finished yet")
    page.keyboard.press("j")
    assert shown(page) is None


def test_a_long_list_is_shown_a_part_at_a_time(tmp_path: Path, viewer: Viewer) -> None:
    page = viewer.open(write_report(write_run(tmp_path, {"aider": TINY}, tasks=53, samples=2)))
    expect(page.locator("table.rollouts tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Show 6 more of 106 rollouts").click()
    expect(page.locator("table.rollouts tbody tr")).to_have_count(106)
    page.get_by_role("button", name="reward").click()
    page.get_by_role("button", name="reward").click()
    expect(page.locator("table.rollouts tbody tr .verdict").first).to_contain_text("passed")
