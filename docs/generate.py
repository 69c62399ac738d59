"""Writes docs/agents.md from what the shipped adapters declare: `make docs`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from longrein.agent import AgentAdapter
from longrein.plugins import PluginHost

PAGE = Path(__file__).with_name("agents.md")
ROOT = PAGE.parents[1]
HEAD = """# Agents

What the adapters of this repository declare, written from their own declarations by `make docs`; a test compares this page with them.
`longrein check adapter NAME` compares the declarations with what the program does.

| agent | program | dialect | native tools | history | takes MCP servers | honours a turn cap | calls a model |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""
FOOT = """
`history` says what an agent does to its conversation: `append_only` repeats it token for token, `strips_thinking` leaves earlier reasoning
out, `rewrites` may change anything. Where tokens part a new training row begins. Agents that take MCP servers can work in environments
([longrein-openenv](../verifiers/openenv/README.md)).

A version other than the pinned one is yours to try: `longrein check adapter NAME` says what still holds.
"""


def page() -> str:
    """Return the text of docs/agents.md."""
    adapters = list(shipped())
    return HEAD + "".join(map(_row, adapters)) + FOOT + "".join(map(_section, adapters))


def shipped() -> Iterator[type[AgentAdapter]]:
    """Yield the adapters of this repository's distributions: those of adapters/, then core's own."""
    folders = {f"longrein-{path.parent.name}" for path in ROOT.glob("adapters/*/pyproject.toml")}
    host = PluginHost.load()
    for names in (folders, {"longrein"}):
        for info in host.plugins:
            if info.distribution in names:
                for entry in info.provides:
                    kind, _, name = entry.partition(" ")
                    if kind == "agent":
                        yield host.agent_class(name)


def _row(adapter: type[AgentAdapter]) -> str:
    can, spec = adapter.capabilities, adapter.toolchain
    program = f"{spec.package} {spec.version} ({'npm' if spec.kind == 'npm' else 'PyPI'})" if spec else "none"
    told = (can.mcp, can.honours_turn_cap, can.calls_model)
    cells = (f"`{adapter.name}`", program, can.dialect, _yes(can.tools), can.history, *map(_yes, told))
    return f"| {' | '.join(cells)} |\n"


def _section(adapter: type[AgentAdapter]) -> str:
    about = (inspect.getdoc(adapter) or "").partition("\n")[0]
    fields = attrs.fields(adapter.Options)
    options = ", ".join(f"`{f.name}`{_default(f.default)}" for f in fields)
    return f"\n## {adapter.name}\n\n{about} " + (f"Options: {options}.\n" if options else "It has no options.\n")


def _default(value: Any) -> str:
    return " (required)" if value is attrs.NOTHING else f" = {json.dumps(value)}"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
