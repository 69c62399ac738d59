"""`longrein compare`: run several agents on the same tasks with the same model and say which is better, and by how much."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from longrein.cli.flags import Json, Policy, PolicyUrl, Sets, TasksetName, overrides

if TYPE_CHECKING:
    from longrein.comparison import AgentFigures, Comparison, PairedDifference
    from longrein.config import Config


def compare(
    config: Annotated[Path | None, typer.Argument(help="A TOML config; without one, name agents and task set.")] = None,
    agents: Annotated[str | None, typer.Option(help="Agents to compare, with commas between; of a config, those to take.")] = None,
    taskset: TasksetName = None,
    policy: Policy = None,
    policy_url: PolicyUrl = None,
    checkpoint: Annotated[
        list[str] | None, typer.Option(help="Compare policies: a run folder, RUN@STEP, or a model folder; may be repeated.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first so many tasks.")] = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Rollouts of each task and agent.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder.")] = None,
    resume: Annotated[Path | None, typer.Option(help="A run folder to go on with.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Compare agents on the same tasks with the same model, or what training did to checkpoints."""
    from longrein import api
    from longrein.cli.live import RolloutView
    from longrein.cli.output import say, show_json
    from longrein.plugins import PluginHost

    flags = [f"compare.{key}={json.dumps(value)}" for key, value in (("checkpoints", checkpoint), ("samples", samples)) if value]
    flags += overrides(taskset=taskset, policy=policy, policy_url=policy_url, sets=sets)
    names = [name.strip() for name in agents.split(",") if name.strip()] if agents else []
    loaded = _config(config or (resume / "config.toml" if resume else None), names, flags, checkpoint or [])
    loaded = api.with_limit(loaded, limit, out)
    host = PluginHost.load(loaded.plugins.use)
    with RolloutView() as view:
        result = api.compare(loaded, resume=resume, host=host, log=view.say, progress=view.finished, started=view.started)
    if as_json:
        show_json({"folder": result.folder, "comparison": result.comparison})
    else:
        show_comparison(result.comparison)
    say(f"wrote {result.folder} with comparison.json, comparison.csv and pairs.csv; next: longrein view {result.folder}")


def _config(path: Path | None, agents: Sequence[str], sets: Sequence[str], checkpoints: Sequence[str]) -> Config:
    """Return the config of a file, of the run that the checkpoints are from, or of flags alone; `agents` are taken from it."""
    from attrs import evolve

    from longrein import config as configs
    from longrein.comparison.checkpoints import config_of_run

    if path is not None:
        loaded = configs.load(path, sets)
    elif checkpoints and (base := config_of_run(checkpoints)):
        loaded = configs.from_mapping(base, sets)
    else:
        loaded = configs.from_mapping({"run": {"name": "compare"}, "agents": {name: {} for name in agents}}, sets)
    return evolve(loaded, agents={name: loaded.agents.get(name, {}) for name in agents}) if agents else loaded


def show_comparison(comparison: Comparison) -> None:
    """Print the results, what they cost, and the differences."""
    from longrein.cli.output import show_table

    several = len(comparison.policies) > 1 or any(policy.name for policy in comparison.policies)
    who = ("policy", "agent") if several else ("agent",)
    ks = sorted({item.k for figures in comparison.figures for item in figures.pass_at} - {1})
    columns = (*who, "pass rate", "95 % interval", *(f"pass@{k}" for k in ks), "reward", "scored", "unscorable", "outcomes")
    show_table(columns, [_result(figures, ks, several) for figures in comparison.figures])
    cost = (*who, "calls", "tokens in", "tokens out", "seconds", "aux share", "actions")
    show_table(cost, [_cost(figures, several) for figures in comparison.figures], title="\nof one rollout, on average")
    if several:
        _show_transfer(comparison)
    if comparison.pairs:
        columns = ("difference in pass rate", "points", "95 % interval", "tasks", "what the data says")
        show_table(columns, [_difference(pair) for pair in comparison.pairs], title="\npaired by task")
    for note in comparison.notes:
        print(f"\n{note}")


def _who(figures: AgentFigures, several: bool) -> tuple[str, ...]:
    return (figures.policy, figures.agent) if several else (figures.agent,)


def _result(figures: AgentFigures, ks: Sequence[int], several: bool) -> tuple[object, ...]:
    from longrein.cli.output import interval, percent

    at = {item.k: item.value for item in figures.pass_at}
    return (
        *_who(figures, several),
        percent(figures.pass_rate),
        interval(figures.interval),
        *(percent(at.get(k)) for k in ks),
        _number(figures.reward, 3),
        figures.scored,
        figures.unscorable,
        _counts(figures.outcomes),
    )


def _cost(figures: AgentFigures, several: bool) -> tuple[object, ...]:
    from longrein.cli.output import percent

    actions = ", ".join(f"{kind} {mean:.1f}" for kind, mean in figures.actions.items())
    tokens = (_number(figures.tokens_in, 0), _number(figures.tokens_out, 0))
    return (*_who(figures, several), _number(figures.calls, 1), *tokens, _number(figures.wall_s, 1), percent(figures.aux_share), actions)


def _show_transfer(comparison: Comparison) -> None:
    """Print pass rates of policies by agents; a star marks agents that a policy was trained through."""
    from longrein.cli.output import percent, show_table

    rates = {(figures.policy, figures.agent): percent(figures.pass_rate) for figures in comparison.figures}
    rows = []
    for policy in comparison.policies:
        trained = policy.trained_with
        shown = "not known" if trained is None else ", ".join(trained) or "none"
        cells = [rates.get((policy.name, agent), "-") + (" *" if agent in (trained or ()) else "") for agent in comparison.agents]
        rows.append((policy.name, shown, *cells))
    show_table(
        ("policy", "trained through", *comparison.agents), rows, title="\ntransfer: pass rate with each agent (* trained through it)"
    )


def _difference(pair: PairedDifference) -> tuple[object, ...]:
    what = f"{pair.second} - {pair.first}" + (f" ({pair.agent or pair.policy})" if pair.agent or pair.policy else "")
    words = {"higher": f"{pair.second} passes more", "lower": f"{pair.first} passes more"}
    points = "-" if pair.difference is None else f"{100 * pair.difference:+.1f}"
    bounds = "-" if pair.interval is None else f"[{100 * pair.interval[0]:+.1f}, {100 * pair.interval[1]:+.1f}]"
    return what, points, bounds, pair.tasks, words.get(pair.conclusion, pair.conclusion)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())
