"""The report's content, read back without a browser."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest
from attrs import evolve

from longrein.comparison import compare_rollouts, write_comparison
from longrein.config import from_mapping
from longrein.errors import RecordError
from longrein.model import Group, Reward, Rollout
from longrein.report import write_report
from longrein.report.page import SCRIPTS, STYLES
from longrein.rollout.groups import group_line
from longrein.rollout.record import RunRecorder, config_toml, read_rollouts
from longrein.rollout.serialize import plain
from longrein.testing.runs import LARGE, TINY, make_rollout, make_task, start_run, unscorable, write_run

from .conftest import Read

PARTS = files("longrein.report") / "page"


def test_every_rollout_is_in_the_page_with_its_figures(run_folder: Path) -> None:
    page = Read.of(write_report(run_folder))
    made = list(read_rollouts(run_folder))
    assert [line["id"] for line in page.index["rollouts"]] == [rollout.id for rollout in made]
    assert [line["status"] for line in page.index["rollouts"]] == [rollout.verdict.status for rollout in made]
    overview = page.index["overview"]
    assert overview["kind"] == "run"
    expected = compare_rollouts(made)
    assert [figures["pass_rate"] for figures in overview["figures"]] == [figures.pass_rate for figures in expected.figures]
    assert [pair["difference"] for pair in overview["pairs"]] == [pair.difference for pair in expected.pairs]


def test_a_trace_holds_the_turns_with_messages_labels_and_tokens(run_folder: Path) -> None:
    page = Read.of(write_report(run_folder))
    rollout = next(iter(read_rollouts(run_folder)))
    detail = page.detail()
    for shown, turn in zip(detail["turns"], rollout.trajectory.turns, strict=True):
        call = turn.call
        assert (shown["label"], shown["reason"], shown["decided_by"]) == (turn.label.label, turn.label.reason, turn.decided_by)
        assert [page.values[number] for number in shown["messages"]] == list(call.messages)
        assert page.values[shown["reply"]] == call.reply
        tokens = page.values[shown["tokens"]]
        assert [token for chunk in tokens["context"] for token in page.values[chunk]] == list(call.context_ids)
        assert tokens["ids"] == list(call.sampled_ids)
        assert tokens["logprobs"] == pytest.approx(list(call.logprobs), abs=1e-4)


def test_what_many_rollouts_share_is_kept_once(tmp_path: Path) -> None:
    one = write_report(write_run(tmp_path / "one", {"opencode": LARGE}, tasks=1, samples=1))
    many = write_report(write_run(tmp_path / "many", {"opencode": LARGE}, tasks=4, samples=3))
    system = next(iter(read_rollouts(tmp_path / "one"))).trajectory.turns[0].call.messages[0]
    assert Read.of(many).values.count(system) == 1
    assert many.stat().st_size - one.stat().st_size < 11 * (one.stat().st_size - len(Read.of(one).shell)) / 2


def test_the_workspace_is_shown_against_what_the_session_began_with(tmp_path: Path) -> None:
    task = make_task(1)
    rollout = make_rollout(task, "aider", 0, shape=TINY)
    kept = {path: content for path, content in rollout.session.workspace.items() if path != "README.md"}
    extra = {"new.txt": b"a\n", "data.bin": b"\xff\x00", "solution.py": b"print(1)\n"}
    rollout = evolve(rollout, session=evolve(rollout.session, workspace={**kept, **extra}))
    recorder = start_run(tmp_path, ["aider"])
    recorder.task(task)
    recorder.rollout(rollout)
    page = Read.of(write_report(tmp_path))
    shown = {change["path"]: change for change in page.values[page.detail()["files"]["list"]]}
    changes = {path: change["change"] for path, change in shown.items()}
    same = {"examples/1.in": "same", "examples/1.out": "same"}
    assert changes == {"solution.py": "changed", "new.txt": "added", "data.bin": "added", "README.md": "missing", **same}
    assert "+print(1)" in shown["solution.py"]["body"].split("\n")
    assert shown["new.txt"]["body"] == "a\n"
    assert shown["data.bin"]["note"] == "2 bytes, not text"


def test_without_the_tasks_or_the_archive_the_rest_is_shown(run_folder: Path) -> None:
    (run_folder / "tasks.jsonl").unlink()
    next((run_folder / "workspaces").iterdir()).unlink()
    page = Read.of(write_report(run_folder))
    shown = [page.detail(number)["files"] for number in range(12)]
    assert shown.count(None) == 1
    assert not any(files["start_known"] for files in shown if files)
    assert {change["change"] for files in shown if files for change in page.values[files["list"]]} == {"final"}


def test_a_comparison_keeps_its_order_and_its_notes(run_folder: Path) -> None:
    write_comparison(run_folder, compare_rollouts(read_rollouts(run_folder), agents=("opencode", "aider")))
    overview = Read.of(write_report(run_folder)).index["overview"]
    assert overview["kind"] == "compare"
    assert [figures["agent"] for figures in overview["figures"]] == ["opencode", "aider"]
    assert any("Fewer than 6 tasks" in note for note in overview["notes"])


def test_what_comparing_a_group_decided_is_shown_instead_of_what_a_rollout_got_by_itself(run_folder: Path) -> None:
    first, *others = read_rollouts(run_folder)
    made = Group("g", first.agent, first.taskset, first.task_id, (first, others[0]))
    final = evolve(first, reward=Reward(0.625, {"judge": 0.125, "passed": 0.5}, "fewer detours", "reward:ruler"))
    RunRecorder(run_folder, exist_ok=True).group(group_line(made, evolve(made, rollouts=(final, others[0]))))
    page = Read.of(write_report(run_folder))
    assert page.index["overview"]["kind"] == "run"
    assert page.index["rollouts"][0]["reward"] == 0.625
    assert page.detail()["reward"] == plain(final.reward)
    assert page.detail()["group"] is None, "nothing was trained"
    assert page.detail(1)["reward"] == plain(others[0].reward)


def test_what_could_not_be_scored_is_shown_and_in_no_rate(tmp_path: Path) -> None:
    folder = write_run(tmp_path, {"aider": TINY}, tasks=2, samples=2, change=lambda r: unscorable(r) if r.sample else r)
    page = Read.of(write_report(folder))
    assert [line["status"] for line in page.index["rollouts"]].count("unscorable") == 2
    (figures,) = page.index["overview"]["figures"]
    assert (figures["scored"], figures["unscorable"], figures["unscorable_outcomes"]) == (2, 2, {"llm_error": 2})


def test_a_torn_last_line_is_left_out(run_folder: Path) -> None:
    path = run_folder / "rollouts.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert len(Read.of(write_report(run_folder)).index["rollouts"]) == 11


def test_a_run_that_has_just_begun_has_a_page(tmp_path: Path) -> None:
    start_run(tmp_path / "run", ["aider"])
    page = Read.of(write_report(tmp_path / "run", tmp_path / "other" / "page.html"))
    assert page.index["rollouts"] == []
    assert not list(tmp_path.rglob("*.part"))


def test_a_folder_without_a_run_is_named_with_the_runs_beside_it(run_folder: Path) -> None:
    with pytest.raises(RecordError, match=r"ruin does not exist; runs beside it: run; did you mean 'run'\?"):
        write_report(run_folder.with_name("ruin"))
    (run_folder.parent / "empty").mkdir()
    with pytest.raises(RecordError, match=r"holds no run: there is no rollouts.jsonl.*Give the folder"):
        write_report(run_folder.parent / "empty")
    with pytest.raises(RecordError, match=r"holds no tokenizer.json.*leave --tokenizer out"):
        write_report(run_folder, tokenizer=run_folder)
    assert not (run_folder / "report.html").exists()


def test_a_damaged_line_is_named(run_folder: Path) -> None:
    with (run_folder / "groups.jsonl").open("w") as file:
        file.write("{torn\n")
    with pytest.raises(RecordError, match=r"groups.jsonl line 1 is damaged"):
        write_report(run_folder)


@pytest.mark.parametrize(("logprob", "shown"), [(float("nan"), None), (float("-inf"), None), (-1.23456, -1.2346)])
def test_log_probabilities_that_are_no_numbers_do_not_break_the_page(tmp_path: Path, logprob: float, shown: float | None) -> None:
    def change(rollout: Rollout) -> Rollout:
        turn = rollout.trajectory.turns[0]
        turn = evolve(turn, call=evolve(turn.call, sampled_ids=[1], logprobs=[logprob]))
        return evolve(rollout, session=evolve(rollout.session, trajectory=evolve(rollout.trajectory, turns=(turn,))))

    page = Read.of(write_report(write_run(tmp_path, {"aider": TINY}, tasks=1, samples=1, change=change)))
    assert page.values[page.detail()["turns"][0]["tokens"]]["logprobs"] == [shown]


def test_token_texts_come_from_the_tokenizer_at_hand(run_folder: Path) -> None:
    from tokenizers import Tokenizer, models

    used = next(iter(read_rollouts(run_folder))).trajectory.turns[0].call.sampled_ids[0]
    assert Read.of(write_report(run_folder)).values[-1] is None
    (run_folder / "model").mkdir()
    Tokenizer(models.WordLevel({"hello": used, "unused": 99_999}, unk_token="hello")).save(str(run_folder / "model" / "tokenizer.json"))
    page = Read.of(write_report(run_folder))
    assert page.values[page.index["vocabulary"]] == {str(used): "hello"}
    values = tomllib.loads((run_folder / "config.toml").read_text())
    (run_folder / "config.toml").write_text(config_toml(from_mapping(values, ["compare.checkpoints=['a', 'b']"])))
    assert Read.of(write_report(run_folder)).values[-1] is None, "policies may have tokenizers of their own"


def test_the_shell_allows_its_own_script_and_style_and_nothing_else(run_folder: Path) -> None:
    shell = Read.of(write_report(run_folder)).shell
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', shell)
    assert policy
    assert re.fullmatch(
        r"default-src (&#39;|')none\1; script-src \1sha256-\S+\1; style-src \1sha256-\S+\1; base-uri \1none\1; form-action \1none\1",
        policy[1],
    )
    assert shell.count("<script") == shell.count("</script") == 1
    assert set(re.findall(r"https?://[^\s\"'<>]+", shell)) == {"http://www.w3.org/2000/svg"}


def test_the_script_makes_no_markup_from_text() -> None:
    script = "\n".join((PARTS / name).read_text() for name in SCRIPTS)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|DOMParser|javascript:", script
    )
    assert not re.search(r"\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", script)
    assert {path.name for path in PARTS.iterdir()} == {*SCRIPTS, *STYLES, "page.html.j2"}


def test_the_parts_are_short_and_are_one_valid_module_together(tmp_path: Path) -> None:
    parts = {name: (PARTS / name).read_text() for name in (*SCRIPTS, *STYLES)}
    assert {name: n for name, text in parts.items() if (n := len(text.splitlines())) > 400} == {}
    (tmp_path / "page.mjs").write_text("\n".join(parts[name] for name in SCRIPTS))
    checked = subprocess.run(["node", "--check", "page.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stderr


def luminance(colour: str) -> float:
    """Return the relative luminance of #rrggbb (WCAG 2.2)."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_text_has_enough_contrast_in_light_and_dark() -> None:
    css = (PARTS / "base.css").read_text()
    colours = {name: pair for name, *pair in re.findall(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", css)}
    pairs = [(text, ground) for text in ("text", "quiet", "accent") for ground in ("ground", "surface", "sunken")]
    pairs += [(name, f"{name}-ground") for name in ("passed", "failed", "unscorable", "train", "aux", "discarded")]
    low = {}
    for text, ground in pairs:
        for theme in (0, 1):
            lights = sorted((luminance(colours[text][theme]), luminance(colours[ground][theme])))
            if (ratio := (lights[1] + 0.05) / (lights[0] + 0.05)) < 4.5:
                low[text, ground, theme] = round(ratio, 2)
    assert low == {}


def test_the_index_is_json_that_a_browser_reads(tmp_path: Path) -> None:
    """NaN is not JSON: metrics of a step without a scored rollout hold it."""
    recorder = start_run(tmp_path, ["aider"])
    recorder.metrics({"step": 1, "loss": float("nan"), "aider/reward": float("inf"), "ratio": 1.0})
    index = Read.of(write_report(tmp_path)).index
    json.dumps(index, allow_nan=False)
    assert [chart["title"] for chart in index["overview"]["charts"]] == ["Importance ratio"]
