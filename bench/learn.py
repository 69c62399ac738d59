"""Does the policy learn? Three seeds and a control with permuted rewards, through the real agents; prints whether it holds.

python bench/learn.py [--runs FOLDER] [--seeds 1 2 3] [--set train.max_steps=2]

A run that is finished in FOLDER is not repeated; a broken-off one goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
GAIN, CONTROL, MINUTES = 0.20, 0.10, 75.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/learn"))
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--no-control", action="store_true", help="leave the control out")
    parser.add_argument("--set", dest="sets", action="append", default=[], help="further config overrides")
    options = parser.parse_args()
    cells = [(f"seed-{seed}", seed, ()) for seed in options.seeds]
    if not options.no_control:
        cells.append(("control", 1, (f"plugins.use=['{EXAMPLES / 'permuted_rewards.py'}']",)))
    holds = True
    print("| run | before | after | change | 95 % interval | pairs | steps | minutes | holds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name, seed, sets in cells:
        folder = options.runs / name
        minutes = train(folder, seed, [*sets, *options.sets])
        summary = json.loads((folder / "summary.json").read_text())
        holds &= report(name, folder, summary, minutes)
    return 0 if holds else 1


def train(folder: Path, seed: int, sets: list[str]) -> float:
    """Train one run to its end and return the minutes it took in all."""
    clock = folder / "minutes.json"
    spent: float = json.loads(clock.read_text()) if clock.exists() else 0.0
    if not (folder / "summary.json").exists():
        begun = time.monotonic()
        known = ["--resume", str(folder)] if list(folder.glob("checkpoints/*")) else ["--out", str(folder)]
        config = [] if known[0] == "--resume" else [str(EXAMPLES / "learn.toml"), "--set", f"run.seed={seed}"]
        overrides = [part for item in sets for part in ("--set", item)]
        subprocess.run([sys.executable, "-m", "longrein", "train", *config, *known, *overrides], check=True, stdout=sys.stderr)
        spent += (time.monotonic() - begun) / 60
        clock.write_text(json.dumps(spent))
    return spent


def report(name: str, folder: Path, summary: dict[str, Any], minutes: float) -> bool:
    """Print a run's row and return whether what is asked of it holds."""
    pooled, change = summary["pooled"], summary["pooled"]["change"]
    low, high = change["interval"]
    learnt = change["difference"] >= GAIN and low > 0 and minutes <= MINUTES
    good = abs(change["difference"]) <= CONTROL if name == "control" else learnt
    steps = max((json.loads(line).get("step", 0) for line in (folder / "metrics.jsonl").open()), default=0)
    print(
        f"| {name} | {pooled['before']['pass_rate']:.3f} | {pooled['after']['pass_rate']:.3f} | {change['difference']:+.3f} "
        f"| [{low:+.3f}, {high:+.3f}] | {change['pairs']} | {steps} | {minutes:.0f} | {'yes' if good else 'NO'} |",
        flush=True,
    )
    return good


if __name__ == "__main__":
    sys.exit(main())
