"""The commands; each imports what it needs when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import longrein
from longrein.cli import agents, comparison, export, grading, inspect, sdk, tasks, view
from longrein.cli.flags import Json, Policy, PolicyUrl, Sets, TasksetName, overrides

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None, help=longrein.__doc__)
app.add_typer(agents.app, name="agents")
app.add_typer(tasks.app, name="tasks")
app.command("doctor")(inspect.doctor)
app.command("plugins")(inspect.plugins)
app.command("turns")(inspect.turns)
app.command("grade")(tasks.grade)
app.command("gold")(grading.gold)
app.command("regrade")(grading.regrade)
app.command("new")(sdk.new)
app.command("check")(sdk.check)
app.command("compare")(comparison.compare)
app.command("view")(view.view)
app.command("export")(export.export)


@app.command()
def run(
    config: Annotated[Path | None, typer.Argument(help="A TOML config; without one, name agent and task set.")] = None,
    agent: Annotated[list[str] | None, typer.Option(help="An agent to run; may be repeated.")] = None,
    taskset: TasksetName = None,
    policy: Policy = None,
    policy_url: PolicyUrl = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Use the first so many tasks.")] = None,
    samples: Annotated[int, typer.Option(min=1, help="Rollouts of each task and agent.")] = 1,
    out: Annotated[Path | None, typer.Option(help="Run folder.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Run agents on tasks without training, and print each turn with its label."""
    from longrein import api
    from longrein import config as configs
    from longrein.cli.live import RolloutView
    from longrein.cli.output import say, show_findings, show_json, show_summary, show_turns
    from longrein.plugins import PluginHost

    agents = [f"agents.{name}={{}}" for name in agent or ()]
    flags = [*agents, *overrides(taskset=taskset, policy=policy, policy_url=policy_url, sets=sets)]
    loaded = configs.load(config, flags) if config else configs.from_mapping({"agents": {}}, flags)
    loaded = api.with_limit(loaded, limit, out)
    host = PluginHost.load(loaded.plugins.use)
    with RolloutView() as view:
        result = api.run(loaded, samples=samples, host=host, log=view.say, progress=view.finished, started=view.started)
    if as_json:
        show_json({"folder": result.folder, **result.summary})
    else:
        for rollout in result.rollouts:
            show_turns(rollout)
        show_summary(result.summary)
    show_findings(result.rollouts)
    say(f"wrote {result.folder}; next: longrein turns {result.folder}")


@app.command()
def train(
    config: Annotated[Path | None, typer.Argument(help="A TOML config; not needed with --resume.")] = None,
    resume: Annotated[Path | None, typer.Option(help="A run folder to go on with.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check everything, start nothing, and print what the run will take.")] = False,
    out: Annotated[Path | None, typer.Option(help="Run folder.")] = None,
    sets: Sets = None,
    as_json: Json = False,
) -> None:
    """Train the policy through its agents; evaluates before and after when the config has [eval]."""
    import json
    import os

    from longrein import api
    from longrein import config as configs
    from longrein.cli.output import say, show_json, show_summary
    from longrein.cli.plan import show_plan
    from longrein.errors import ConfigError
    from longrein.plugins import PluginHost

    if config is None and resume is None:
        raise ConfigError("train needs a config file, or --resume RUN; see examples/quickstart.toml")
    path = config or (resume or Path()) / "config.toml"
    loaded = api.with_limit(configs.load(path, sets or ()), None, resume or out)
    host = PluginHost.load(loaded.plugins.use)
    if dry_run:
        show_plan(loaded, host, as_json=as_json)
        return
    folder = api.train(loaded, resume=resume, host=host, log=say)
    if os.environ.get("RANK", "0") != "0":  # of several training processes one tells the result
        return
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    if as_json:
        show_json({"folder": folder, **summary})
    else:
        show_summary(summary)
    say(f"wrote {folder}; the trained model is in {folder / 'model'}; next: longrein turns {folder}")


@app.command()
def serve(
    policy: Annotated[str, typer.Argument(help="practice, or a folder with a transformers model.")] = "practice",
    engine: Annotated[str, typer.Option(help="embedded, or vllm.")] = "embedded",
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8000,
    agent: Annotated[list[str] | None, typer.Option(help="Agents the practice policy is built for.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Tokens of prompt and reply together.")] = None,
    dtype: Annotated[str, typer.Option(help="Of the weights served.")] = "float32",
    engine_arg: Annotated[list[str] | None, typer.Option(help="A further flag of vLLM, or its value; may be repeated.")] = None,
) -> None:
    """Serve a policy with an OpenAI-compatible server until interrupted: our own, or vLLM with all that training needs."""
    import sys

    from longrein import config as configs
    from longrein.cli.output import say
    from longrein.errors import UnknownNameError
    from longrein.plugins import PluginHost
    from longrein.rollout.policy import need_extra, resolve_model

    if engine not in ("embedded", "vllm"):
        raise UnknownNameError("engine", engine, ("embedded", "vllm"))
    agents_table: dict[str, dict[str, str]] = {name: {} for name in agent or ("opencode", "aider")}
    loaded = configs.from_mapping({"agents": agents_table, "taskset": "practice", "policy": {"model": policy, "engine": engine}})
    if engine == "embedded":
        need_extra("train", "torch", "transformers", "uvicorn")
    folder = resolve_model(loaded, PluginHost.load(), log=say)
    say(f"serving {folder.name} at http://{host}:{port}/v1 (Ctrl-C ends it)")
    if engine == "embedded":
        from longrein.serve.app import ServeOptions
        from longrein.serve.app import serve as serve_model

        serve_model(ServeOptions(model=folder, host=host, port=port, max_model_len=max_model_len, dtype=dtype))
        return
    from longrein.serve.vllm.keep import serve_vllm

    sys.exit(serve_vllm(folder, host=host, port=port, max_model_len=max_model_len, dtype=dtype, args=engine_arg or ()))
