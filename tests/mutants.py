"""Break the code in known ways, one at a time; each break must make the suite fail. `make mutants` runs it.

The tree is copied once; a break is one replacement in one file, and the tests that are named for it run on the copy. A
replacement whose text does not stand in the file exactly once ends the run: the code moved and the list must follow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).resolve().parent.parent
CORE = "core/src/longrein"
RULER = "verifiers/ruler/src/longrein_ruler"
DEEPCODER = "verifiers/deepcoder/src/longrein_deepcoder"


@frozen
class Mutant:
    """One way to break the code."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    """Test files that must notice."""


MUTANTS = (
    Mutant(
        "the text of a program stays in its worker",
        f"{DEEPCODER}/forkserver/lr_init.py",
        "            text[:] = bytes(len(text))\n",
        "            pass\n",
        ("tests/unit/deepcoder/test_deepcoder_workers.py",),
    ),
    Mutant(
        "a program gets a worker that has imported more",
        f"{DEEPCODER}/forked.py",
        "if worker.ahead == ahead",
        "if set(ahead) <= set(worker.ahead)",
        ("tests/unit/deepcoder/test_deepcoder_workers.py",),
    ),
    Mutant(
        "a judge's scores are read by place and not by id",
        f"{RULER}/answer.py",
        "{name: _scored(name, values[name]) for name in ids}",
        "{name: _scored(name, value) for name, value in zip(ids, values.values())}",
        ("tests/unit/ruler/test_ruler_judge.py",),
    ),
    Mutant(
        "a judge that fails gives 0",
        f"{RULER}/reward.py",
        "Reward(None, reason=reason, details=",
        "Reward(0.0, reason=reason, details=",
        ("tests/unit/ruler/test_ruler_judge.py",),
    ),
    Mutant(
        "what is judged can know the code of its fence",
        f"{RULER}/prompt.py",
        "    return digits[:16]\n",
        "    return 16 * '0'\n",
        ("tests/unit/ruler/test_ruler_prompt.py",),
    ),
    Mutant(
        "requests under way do not count",
        f"{RULER}/store.py",
        "self._calls + self._calls_ahead >= options.max_calls",
        "self._calls >= options.max_calls",
        ("tests/unit/ruler/test_ruler_judge.py",),
    ),
    Mutant(
        "an object of the agent's is equal to an expected value because it says so",
        "verifiers/pytest/src/longrein_pytest/remote.py",
        'return isinstance(other, Remote) and bool(self._link.ask("operate", "__eq__"',
        'return bool(self._link.ask("operate", "__eq__"',
        ("tests/unit/graders/test_pytest_attacks.py",),
    ),
    Mutant(
        "a changed task is graded again",
        f"{CORE}/rollout/regrade.py",
        "if task.digest != rollout.task_digest:",
        "if False:",
        ("tests/cli/test_gold_and_regrade.py",),
    ),
    Mutant(
        "title calls are trained",
        "core/src/longrein/reading.py",
        'TurnLabel("aux", reason)',
        'TurnLabel("train", reason)',
        ("tests/plugins/test_opencode.py",),
    ),
    Mutant(
        "side calls are trained",
        f"{CORE}/turns/structure.py",
        'TurnLabel("aux", roles',
        'TurnLabel("train", roles',
        ("tests/unit/test_turns_labels.py",),
    ),
    Mutant(
        "what could not be scored counts as failed in a comparison",
        f"{CORE}/comparison/figures.py",
        "scored = [measure for measure in measures if measure.cell.passed is not None]",
        "scored = list(measures)",
        ("tests/unit/test_comparison.py",),
    ),
    Mutant(
        "the interval of a difference is a fifth too narrow",
        f"{CORE}/rollout/summary.py",
        "return [mean - half, mean + half]",
        "return [mean - 0.8 * half, mean + 0.8 * half]",
        ("tests/unit/test_comparison.py",),
    ),
    Mutant(
        "a resumed comparison makes everything again",
        f"{CORE}/comparison/cells.py",
        "found.add(rollout.id)",
        "pass",
        ("tests/unit/test_comparison_cells.py",),
    ),
    Mutant(
        "mask shifted by one",
        f"{CORE}/turns/rows.py",
        "mask += [0] * n_context + [int(train)] * n_sampled",
        "mask += [0] * (n_context - 1) + [int(train)] * n_sampled + [0]",
        ("tests/unit/test_turns_properties.py", "tests/unit/test_rows.py"),
    ),
    Mutant(
        "no reward counts as 0.0",
        f"{CORE}/training/advantages.py",
        "scored = [reward for reward in rewards if reward is not None]",
        "scored = [reward or 0.0 for reward in rewards]",
        ("tests/unit/test_train/test_parts.py",),
    ),
    Mutant(
        "unscorable counts as failed",
        f"{CORE}/rollout/summary.py",
        'None if status == "unscorable" else status == "passed"',
        'status == "passed"',
        ("tests/unit/test_summary.py",),
    ),
    Mutant(
        "weights are not loaded by the server",
        f"{CORE}/training/transfer.py",
        "            control.load(offer_weights(path, folder), version)\n",
        "            offer_weights(path, folder)\n",
        ("tests/unit/test_train/test_steps.py",),
    ),
    Mutant(
        "a session whose weights are too old goes on",
        f"{CORE}/capture/session.py",
        "version - first > self._max_staleness",
        "False",
        ("tests/e2e/test_stale.py",),
    ),
    Mutant(
        "sampling does not wait for a slow grader",
        f"{CORE}/rollout/flow.py",
        " or self._waiting >= self._most_waiting",
        "",
        ("tests/unit/test_train/test_producer.py",),
    ),
    Mutant(
        "a tree that was quiet is not listed again",
        f"{CORE}/sandbox/init.py",
        "if newest != listed:",
        "if listed < 0:",
        ("tests/unit/test_sandbox.py",),
    ),
    Mutant(
        "a session that is lost with its worker is not made again",
        f"{CORE}/cluster/executor.py",
        "TRIES = 2\n",
        "TRIES = 1\n",
        ("tests/cluster/test_ray.py",),
    ),
    Mutant(
        "a policy server that serves an old version is asked",
        f"{CORE}/capture/servers.py",
        "served is not None and served >= self.version",
        "served is not None",
        ("tests/cluster/test_servers.py",),
    ),
    Mutant(
        "a neighbour's log-probabilities",
        f"{CORE}/turns/rows.py",
        "(list(call.logprobs) if train",
        "([*call.logprobs[1:], call.logprobs[0]] if train",
        ("tests/unit/test_turns_properties.py", "tests/unit/test_rows.py"),
    ),
    Mutant(
        "row versions off by one",
        f"{CORE}/turns/rows.py",
        "versions.append(call.version_first)",
        "versions.append(call.version_first + 1)",
        ("tests/unit/test_rows.py", "tests/unit/test_turns_properties.py"),
    ),
    Mutant(
        "served version off by one",
        f"{CORE}/serve/scheduler.py",
        "job.version, job.ids, job.rng = self.version,",
        "job.version, job.ids, job.rng = self.version + 1,",
        ("tests/unit/test_serve",),
    ),
)


def main() -> int:
    """Try every mutant; return 1 when the suite missed one."""
    chosen = [mutant for mutant in MUTANTS if not sys.argv[1:] or any(word in mutant.name for word in sys.argv[1:])]
    missed = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        copy = Path(name)
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.decode().split("\0")
        for path in filter(None, tracked):
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, copy / path)
        for mutant in chosen:
            noticed = _noticed(mutant, copy)
            print(f"{'noticed' if noticed else 'MISSED ':<8} {mutant.name}", flush=True)
            if not noticed:
                missed.append(mutant.name)
    print(f"{len(chosen) - len(missed)} of {len(chosen)} mutants noticed")
    return 1 if missed else 0


def _noticed(mutant: Mutant, copy: Path) -> bool:
    path = copy / mutant.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise SystemExit(
            f"mutant {mutant.name!r}: its text stands {text.count(mutant.old)} times in {mutant.file}, not once; mend the list"
        )
    if _suite(copy, mutant.tests) != 0:
        raise SystemExit(f"mutant {mutant.name!r}: {' '.join(mutant.tests)} fails without the mutant already")
    path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        return _suite(copy, mutant.tests) == 1
    finally:
        path.write_text(text, encoding="utf-8")


def _suite(copy: Path, tests: tuple[str, ...]) -> int:
    # The copy's sources come before the installed ones: editable installs put theirs at the end of the path.
    sources = os.pathsep.join(str(path) for path in [copy / "core/src", *copy.glob("adapters/*/src"), *copy.glob("verifiers/*/src")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-x", "-m", "not more", "-p", "no:cacheprovider", *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": sources},
        capture_output=True,
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
