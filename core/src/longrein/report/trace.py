"""One rollout as the page shows it: its line in the index, and everything else in the store."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from attrs import frozen

from longrein.model import CaseResult, ModelCall, PublicTask, Rollout, Turn
from longrein.report.files import as_json, changes
from longrein.report.store import Store
from longrein.report.text import cut, cut_deep, finite
from longrein.rollout.serialize import plain

CHUNK = 256
"""Prompt tokens in one value of the store: prompts that begin alike share their first values."""
MAX_TURNS = 1_000
MAX_CASES = 200
MAX_ACTIONS = 500
EXCERPT = 300
"""Characters of a reason in the index."""


@frozen
class Evidence:
    """What a run folder has on a rollout besides its record; None where it has nothing."""

    task: PublicTask | None
    workspace: Mapping[str, bytes] | None
    archive: str
    """Path of the workspace's archive in the run folder."""
    group: Mapping[str, Any] | None


class Traces:
    """Puts rollouts into a store.

    Args:
        store: takes the values.
        folder: the run folder, named where a text is cut.
    """

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._where = f"{folder.name}/rollouts.jsonl"
        self.token_ids: set[int] = set()
        """Every token id that the page holds."""
        self._chunks: dict[bytes, int] = {}

    def add(self, rollout: Rollout, evidence: Evidence) -> dict[str, Any]:
        """Keep a rollout and return its line of the index."""
        turns = rollout.trajectory.turns
        labels = Counter(turn.label.label for turn in turns)
        return {
            "id": rollout.id,
            "agent": rollout.agent,
            "policy": rollout.policy,
            "task": rollout.task_id,
            "sample": rollout.sample,
            "phase": rollout.phase,
            "status": rollout.verdict.status,
            "outcome": rollout.outcome.kind,
            "reason": (rollout.verdict.reason or rollout.outcome.reason)[:EXCERPT],
            "score": rollout.verdict.score,
            "reward": _final_reward(rollout, evidence.group),
            "labels": dict(labels),
            "calls": len(turns),
            "sampled": sum(len(turn.call.sampled_ids) for turn in turns),
            "wall_s": round(rollout.session.wall_s, 3),
            "detail": self._store.put(self._detail(rollout, evidence)),
        }

    def _detail(self, rollout: Rollout, evidence: Evidence) -> dict[str, Any]:
        session, trajectory = rollout.session, rollout.trajectory
        tools = {key: self._keep(list(manifest)) for key, manifest in trajectory.tools.items()}
        return {
            "taskset": rollout.taskset,
            "digest": rollout.task_digest,
            "group_id": rollout.group_id,
            "seed": rollout.seed,
            "outcome": plain(rollout.outcome),
            "verdict": self._verdict(rollout),
            "reward": self._bounded((evidence.group or {}).get("compared", {}).get(rollout.id) or plain(rollout.reward)),
            "group": _group(rollout.id, evidence.group),
            "actions": [[action.kind, action.name, cut(action.detail, where=self._where)] for action in rollout.actions[:MAX_ACTIONS]],
            "exit_code": session.exit_code,
            "sandbox": self._bounded(plain(session.sandbox)),
            "findings": self._bounded(plain(session.findings)),
            "stdout": self._keep(session.stdout),
            "stderr": self._keep(session.stderr),
            "prompt": None if evidence.task is None else self._keep(evidence.task.prompt),
            "turns": [self._turn(turn, tools) for turn in trajectory.turns[:MAX_TURNS]],
            "turns_left_out": max(0, len(trajectory) - MAX_TURNS),
            "files": self._files(evidence),
        }

    def _turn(self, turn: Turn, tools: Mapping[str, int]) -> dict[str, Any]:
        call = turn.call
        return {
            **{name: getattr(call, name) for name in ("id", "index", "finish_reason", "dialect", "max_tokens", "delivered", "prompt_len")},
            "parent": call.parent_id,
            "label": turn.label.label,
            "reason": cut(turn.label.reason, where=self._where),
            "decided_by": turn.decided_by,
            "base": call.messages_base,
            "kept": call.messages_kept,
            "messages": [self._keep(message) for message in call.messages],
            "reply": self._keep(call.reply),
            "tools": tools.get(call.tools_key) if call.tools_key else None,
            "asked": self._bounded(call.requested_sampling),
            "usage": plain(call.usage),
            "versions": [call.version_first, call.version_last],
            "started_s": round(call.started_s, 3),
            "ended_s": round(call.ended_s, 3),
            "error": call.error and cut(call.error, where=self._where),
            "problem": call.problem and cut(call.problem, where=self._where),
            "sampled": len(call.sampled_ids),
            "mean_logprob": _mean(call.logprobs),
            "tokens": self._tokens(call),
        }

    def _tokens(self, call: ModelCall) -> int:
        context, sampled = list(call.context_ids), list(call.sampled_ids)
        self.token_ids.update(sampled)
        return self._store.put(
            {
                "context": [self._chunk(context[start : start + CHUNK]) for start in range(0, len(context), CHUNK)],
                "n_context": len(context),
                "ids": sampled,
                "logprobs": [round(value, 4) if _finite(value) else None for value in call.logprobs],
            }
        )

    def _chunk(self, ids: list[int]) -> int:
        digest = blake2b(array("q", ids), digest_size=16).digest()  # most prompts begin as one before: nothing to write then
        if digest not in self._chunks:
            self._chunks[digest] = self._store.put(ids)
            self.token_ids.update(ids)
        return self._chunks[digest]

    def _verdict(self, rollout: Rollout) -> dict[str, Any]:
        verdict = rollout.verdict
        return {
            "reason": cut(verdict.reason, where=self._where),
            "details": self._bounded(plain(verdict.details)),
            "cases": self._keep([self._case(case) for case in verdict.cases[:MAX_CASES]]),
            "counts": dict(Counter(case.status for case in verdict.cases)),
            "cases_left_out": max(0, len(verdict.cases) - MAX_CASES),
        }

    def _case(self, case: CaseResult) -> dict[str, Any]:
        values = self._bounded(plain(case))
        return {key: value for key, value in values.items() if value not in ("", None)}

    def _files(self, evidence: Evidence) -> dict[str, Any] | None:
        if evidence.workspace is None:
            return None
        before = evidence.task.files if evidence.task else None
        found, left_out = changes(before, evidence.workspace, where=evidence.archive)
        return {
            "start_known": evidence.task is not None,
            "archive": evidence.archive,
            "left_out": left_out,
            "list": self._store.put([as_json(change) for change in found]),
            "changed": sum(change.change not in ("same", "missing") for change in found),
        }

    def _keep(self, value: Any) -> int:
        return self._store.put(self._bounded(value))

    def _bounded(self, value: Any) -> Any:
        return cut_deep(value, where=self._where)


def _final_reward(rollout: Rollout, group: Mapping[str, Any] | None) -> float | None:
    """Return the reward after the hooks that compare rollouts, where the run has one."""
    value = group["rewards"].get(rollout.id) if group else rollout.reward.value
    return value if _finite(value) else None


def _group(rollout_id: str, group: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if group is None or "rows" not in group:  # `run` compares rollouts and trains none
        return None
    values = {name: finite(group.get(name)) for name in ("baseline", "std", "rows", "trained_tokens", "skipped")}
    return {**values, "advantage": finite(group.get("advantages", {}).get(rollout_id)), "versions": group.get("versions")}


def _mean(values: Sequence[float]) -> float | None:
    known = [value for value in values if _finite(value)]
    return round(math.fsum(known) / len(known), 4) if known else None


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)
