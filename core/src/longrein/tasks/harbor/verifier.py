"""Grades a workspace by a Harbor task's tests/test.sh and the reward that it writes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from longrein.errors import SandboxError
from longrein.model import Verdict
from longrein.options import structure
from longrein.sandbox.folders import read_left
from longrein.tasks.command import LIMITS
from longrein.tasks.harbor.box import Finished, run_script
from longrein.verifier import Verifier

MAX_REWARD_KB = 64


@frozen
class HarborHidden:
    """The hidden data of a task."""

    tests: str
    """The task's folder of tests; test.sh is run."""
    workdir: str
    """Where the workspace stands for them."""
    timeout_s: float


class HarborVerifier(Verifier):
    """Runs tests/test.sh: a reward of 1 passed, a smaller one failed, none or one outside [0, 1] could not grade."""

    name: ClassVar[str] = "harbor"
    contract: ClassVar[str | None] = "longrein.tasks.harbor.contract:HarborContract"

    async def grade(self, hidden: Mapping[str, Any], workspace: Path) -> Verdict:
        """Grade `workspace` at the task's working folder, with the tests at /tests."""
        task = structure(HarborHidden, hidden, where="hidden data")
        try:
            async with run_script(
                "/tests/test.sh",
                workspace,
                workdir=task.workdir,
                folders={"/tests": Path(task.tests)},
                timeout_s=task.timeout_s,
                limits=LIMITS,
            ) as finished:
                return _verdict(finished)
        except (SandboxError, OSError) as error:
            return Verdict.unscorable(f"tests/test.sh cannot be run: {error}")


def _verdict(finished: Finished) -> Verdict:
    details: dict[str, Any] = {"exit_code": finished.exit_code, "output": finished.output, "isolation": "bwrap"}
    if finished.ended_by == "timeout":
        return Verdict("failed", 0.0, "tests/test.sh did not end within its time", details=details)
    if finished.ended_by != "exit":
        return Verdict.unscorable("tests/test.sh was killed from outside", **details)
    try:
        rewards = read_rewards(finished.logs)
        reward = _reward(rewards)
    except ValueError as error:
        return Verdict.unscorable(str(error), **details)
    details["rewards"] = rewards
    return Verdict("passed" if reward == 1 else "failed", reward, f"tests/test.sh gave the reward {reward:g}", details=details)


def read_rewards(folder: Path) -> dict[str, float]:
    """Return the named rewards of /logs/verifier: the numbers of reward.json, and reward.txt where that has no "reward".

    Raises:
        ValueError: there is no reward, or it cannot be read; the message says why. What was written is not quoted.
    """
    text, table = _read(folder / "reward.txt"), _read(folder / "reward.json")
    rewards: dict[str, float] = {}
    if table is not None:
        try:
            values = json.loads(table)
        except (ValueError, RecursionError):
            raise ValueError("tests/test.sh wrote a reward.json that is not JSON") from None
        if not isinstance(values, dict):
            raise ValueError("tests/test.sh wrote a reward.json that is no object")
        rewards = {key: value for key, value in values.items() if isinstance(value, (int, float)) and not isinstance(value, bool)}
    if text is not None and "reward" not in rewards:
        try:
            rewards["reward"] = float(text)
        except ValueError:
            raise ValueError("tests/test.sh wrote a reward.txt that is no number") from None
    if not rewards:
        raise ValueError("tests/test.sh wrote no reward to /logs/verifier")
    return rewards


def _reward(rewards: Mapping[str, float]) -> float:
    if "reward" not in rewards and len(rewards) > 1:
        raise ValueError(f"tests/test.sh wrote {len(rewards)} rewards and none called reward")
    reward = rewards.get("reward", next(iter(rewards.values())))
    if not math.isfinite(reward) or not 0 <= reward <= 1:
        raise ValueError(f"tests/test.sh wrote the reward {reward:g}, which is not in [0, 1]")
    return float(reward)


def _read(path: Path) -> str | None:
    """Return the text of a file that a program of an agent may have put there; None when it is missing."""
    try:
        data = read_left(path, (MAX_REWARD_KB << 10) + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"tests/test.sh left a {path.name} that cannot be read: {error.strerror}") from error
    if data is None:
        raise ValueError(f"tests/test.sh left a {path.name} that is no file")
    if len(data) > MAX_REWARD_KB << 10:
        raise ValueError(f"tests/test.sh left a {path.name} of more than {MAX_REWARD_KB} KiB")
    return data.decode("utf-8", "replace")
