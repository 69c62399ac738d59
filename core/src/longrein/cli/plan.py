"""`longrein train --dry-run`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from longrein.config import Config
    from longrein.plugins import PluginHost

GIB = 1 << 30


def show_plan(config: Config, host: PluginHost, *, as_json: bool) -> None:
    """Print what a run of a config will take."""
    from attrs import asdict

    from longrein.cli.output import say, show_json, show_table
    from longrein.training.plan import make_plan

    plan = make_plan(config, host, processes=int(os.environ.get("WORLD_SIZE", "1")))
    if os.environ.get("RANK", "0") != "0":
        return
    if as_json:
        show_json(asdict(plan))
        return
    show_table(("process", "what"), list(plan.processes.items()))
    show_table(("listens at", "where"), list(plan.ports.items()))
    sizes = {part: "unknown: the model is not on this machine" if n is None else f"{n / GIB:.2f} GiB" for part, n in plan.memory.items()}
    show_table(("memory of", "about"), list(sizes.items()))
    counts = {
        "tasks, of these for evaluation": f"{plan.tasks + plan.eval_tasks}, {plan.eval_tasks}",
        "parameters, of these trained": f"{_count(plan.parameters)}, {_count(plan.trained_parameters)}",
        "steps, rows in each, rows in a forward pass": f"{plan.steps}, {plan.rows_per_step}, {plan.rows_per_forward}",
        "sessions at once": str(plan.sessions_at_once),
        "groups under way, at most": str(plan.groups_ahead),
        "versions a row may lag behind": str(plan.staleness),
    }
    show_table(("figure", "value"), list(counts.items()))
    say("nothing was started; next: the same command without --dry-run")


def _count(parameters: int | None) -> str:
    return "unknown" if parameters is None else f"{parameters:,}"
