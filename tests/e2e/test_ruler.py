"""A training step on a judge's scores: the real Aider, the practice policy, the real verifier, TRL's trainer, a real HTTP server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.ruler.conftest import Says, ScriptedJudge, scores, shown

from longrein.model import Reward
from longrein_ruler.blend import blend

CONFIG = """
[taskset]
name = "practice"
[agents.aider]
[policy]
model = {policy}
[limits]
sessions = 2
timeout_s = 240
max_calls = 12
max_reply_tokens = 256
[reward]
name = "ruler"
options = {{ url = {url}, model = "scripted", cache = {cache}, passes = 2 }}
[train]
max_steps = 1
group_size = 3
rows_per_step = 3
"""


def by_text(body: dict[str, Any], _number: int) -> Says:
    """Score attempts by the alphabetical order of what they did, whatever place they are shown at."""
    texts = shown(body)
    ranked = sorted(texts, key=lambda name: texts[name])
    return scores({name: place / len(ranked) for place, name in enumerate(ranked)})


@pytest.mark.more
@pytest.mark.timeout(900)
def test_a_step_of_the_real_aider_is_trained_on_the_judges_scores(practice_policy: Path, tmp_path: Path, nothing_left: Path) -> None:
    out, config, cache = tmp_path / "run", tmp_path / "ruler.toml", tmp_path / "cache"
    with ScriptedJudge() as judge:
        judge.script = by_text
        quoted = {name: json.dumps(str(value)) for name, value in {"policy": practice_policy, "url": judge.url, "cache": cache}.items()}
        config.write_text(CONFIG.format(**quoted))
        command = [sys.executable, "-m", "longrein", "train", str(config), "--out", str(out), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    groups = [json.loads(line) for line in (out / "groups.jsonl").read_text().splitlines()]
    judged = [group for group in groups if any(reward["details"].get("answers") for reward in group["compared"].values())]
    assert any(group["rows"] for group in judged)
    for group in judged:
        for name, reward in group["compared"].items():
            details, passed = reward["details"], group["statuses"][name] == "passed"
            assert len(set(details["scores"])) == 1
            mixed = blend("verifier_first", 0.5, judge=details["scores"][0], verifier=Reward(float(passed)), passed=passed)
            assert group["rewards"][name] == reward["value"] == pytest.approx(mixed.value)
            assert (details["agreement"], reward["decided_by"]) == (pytest.approx(1.0), "reward:ruler")
            assert reward["reason"].startswith("worth ")
        values = group["rewards"]
        if group["skipped"] is None:
            assert max(values, key=values.__getitem__) == max(values, key=lambda name: group["advantages"][name])
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert any(entry.get("aider/reward/agreement") == pytest.approx(1.0) for entry in metrics)
    answers = {key for group in judged for reward in group["compared"].values() for key in reward["details"]["answers"]}
    assert answers <= {path.stem for path in cache.glob("??/*.json")}
    assert len(judge.requests) >= len(answers) >= 2, "one of a group that was made ahead may have no line when the run ends"
    assert (out / "model" / "model.safetensors").is_file()
