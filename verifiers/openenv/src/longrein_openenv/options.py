"""The options of the task set "openenv"."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen, validators

from longrein.errors import ConfigError

positive: Any = validators.gt(0)


def _range(_instance: Any, _attribute: Any, value: Sequence[float]) -> None:
    if len(value) != 2 or not all(map(math.isfinite, value)) or value[0] >= value[1]:
        raise ValueError(f"reward_range must be the lowest and the highest reward, got {list(value)}")


@frozen
class OpenEnvOptions:
    """Options of the task set. Exactly one of `url`, `server` and `environment_factory` says where environments come from."""

    url: str | None = None
    """A running OpenEnv server, such as "http://127.0.0.1:8000"."""
    server: str | None = None
    """An OpenEnv server to start here: its ASGI app as "package.module:app" or "path/to/app.py:app"."""
    environment_factory: str | Mapping[str, str] | None = None
    """An environment class as TRL's trainers take it, "package.module:Class" or "path/to/file.py:Class"; or a table of several by name,
    and each row names one under `environment`."""
    tasks: Path | None = None
    """A JSONL file with a task in each line: `prompt`, and whatever else `reset` takes."""
    prompt: str = ""
    """The prompt of tasks that have none of their own."""
    seeds: int = field(default=1, validator=positive)
    """Without `tasks`: so many tasks, which differ in the `seed` that `reset` gets."""
    first_seed: int = field(default=0, validator=validators.ge(0))
    """The seed of the first; evaluate on others than you train on."""
    api_key_env: str | None = None
    """Environment variable with the server's key, which is sent as a bearer token."""
    reward: Literal["last", "sum", "state"] = "last"
    """What a server's episode is worth: the last reward of a step, the sum of all, or `reward` in its state, also when it comes late."""
    reward_range: Sequence[float] = field(default=(0.0, 1.0), validator=_range)
    """The lowest and the highest reward: they become the scores 0 and 1, and the highest alone is passed."""
    call_timeout_s: float = field(default=60.0, validator=positive)
    """Longest reset or tool call."""
    verdict_timeout_s: float = field(default=600.0, validator=positive)
    """How long after its session a reward may come."""

    def __attrs_post_init__(self) -> None:
        given = [name for name in ("url", "server", "environment_factory") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigError(
                f"[taskset.options] of 'openenv' takes one of url, server and environment_factory, got {', '.join(given) or 'none'}"
            )
