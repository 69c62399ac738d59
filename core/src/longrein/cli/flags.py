"""Flags that several commands have."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Override a config key: a.b=value.")]
TasksetName = Annotated[str | None, typer.Option("--taskset", help="A task set, name:config, or a folder ending in /.")]
Policy = Annotated[str | None, typer.Option("--policy", help="practice, a model folder, or the served name with --policy-url.")]
PolicyUrl = Annotated[
    str | None, typer.Option("--policy-url", "--model-url", help="An OpenAI-compatible endpoint that is already running.")
]


def overrides(*, taskset: str | None, policy: str | None, policy_url: str | None, sets: Sequence[str] | None) -> list[str]:
    """Return flags as overrides of config keys: `--set` comes last and wins.

    Args:
        taskset: replaces [taskset] or [tasksets], whose options belong to others.
        policy, policy_url: keys of [policy].
        sets: what `--set` gave.
    """
    flags = [] if taskset is None else ["tasksets={}", f"taskset={{name={json.dumps(taskset)}}}"]
    flags += [f"policy.{key}={json.dumps(value)}" for key, value in (("model", policy), ("url", policy_url)) if value is not None]
    return [*flags, *(sets or ())]
