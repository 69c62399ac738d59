"""Checks of what hooks answer. Each returns the answer, or raises BadAnswer with what was wrong."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import attrs

from longrein.agent import LaunchPlan
from longrein.model import Reward, TurnLabel
from longrein.plugins.guard import BadAnswer

T = TypeVar("T")


def launch_plan(answer: Any) -> LaunchPlan | None:
    """Accept None or a plan whose argv, env and files are text."""
    plan = _typed(answer, LaunchPlan)
    if plan is None:
        return None
    if isinstance(plan.argv, str) or not plan.argv or not _texts(plan.argv):
        raise BadAnswer(f"a LaunchPlan with argv {plan.argv!r}; it takes a list of strings, the program first")
    for part in ("env", "files"):
        mapping = getattr(plan, part)
        if not isinstance(mapping, Mapping) or not _texts(mapping) or not _texts(mapping.values()):
            raise BadAnswer(f"a LaunchPlan whose {part} are not text to text")
    return plan


def turn_label(answer: Any) -> TurnLabel | None:
    """Accept None or a label other than invalid."""
    label = _typed(answer, TurnLabel)
    if label is not None and label.label == "invalid":
        raise BadAnswer("'invalid', which only capture decides")
    return label


def reward(answer: Any) -> Reward | None:
    """Accept None or a reward whose numbers are finite and whose details JSON can hold."""
    given = _typed(answer, Reward)
    if given is None:
        return None
    for name, number in (("value", given.value), *given.parts.items()):
        if number is None and name == "value":
            continue
        if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
            raise BadAnswer(f"a Reward with {name} {number!r}; it takes a finite number")
    try:
        json.dumps(given.details, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadAnswer(f"a Reward whose details are no JSON: {error}") from error
    return given if given.value is None else attrs.evolve(given, value=float(given.value))


def mapping(answer: Any) -> dict[Any, Any] | None:
    """Accept None or any mapping; `group_rewards` looks inside."""
    given: Mapping[Any, Any] | None = _typed(answer, Mapping)  # type: ignore[type-abstract]
    return None if given is None else dict(given)


def group_rewards(answer: dict[Any, Any], ids: Iterable[str]) -> Mapping[str, Reward]:
    """Accept exactly one sound reward for each id."""
    expected = list(ids)
    missing = [i for i in expected if i not in answer]
    unknown = [i for i in answer if i not in expected]
    if missing or unknown:
        parts = [f"{word} {', '.join(map(str, names))}" for word, names in (("without", missing), ("with unknown", unknown)) if names]
        raise BadAnswer(f"rewards {' and '.join(parts)}")
    rewards = {}
    for rollout_id in expected:
        try:
            given = reward(answer[rollout_id])
        except BadAnswer as error:
            raise BadAnswer(f"for {rollout_id}: {error}") from error
        if given is None:
            raise BadAnswer(f"for {rollout_id}: None; Reward(None, reason=...) says that a rollout has no reward")
        rewards[rollout_id] = given
    return rewards


def anything(answer: Any) -> Any:
    """Accept any answer: observers return nothing of use."""
    return answer


def _typed(answer: Any, kind: type[T]) -> T | None:
    if inspect.iscoroutine(answer):
        answer.close()
        raise BadAnswer("with a coroutine; this hook must not be async")
    if answer is not None and not isinstance(answer, kind):
        raise BadAnswer(f"{answer!r:.200}; it takes {kind.__name__} or None")
    return answer


def _texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
