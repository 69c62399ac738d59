"""docs/configuration.md has every key with its default, and no key that is gone."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import attrs
import pytest

from longrein.config import Config, TasksetConfig, from_mapping
from longrein.plugins import PluginHost

DOC = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
AGENTS = ("aider", "claude-code", "codex", "mini-swe-agent", "opencode", "qwen-code")
OURS = {"longrein", "longrein-deepcoder", *(f"longrein-{agent}" for agent in AGENTS)}


def documented(heading: str) -> dict[str, str]:
    """Return key to default of the table below a heading."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", DOC, re.MULTILINE | re.DOTALL)
    assert found, f"docs/configuration.md has no heading {heading!r}"
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", found[1], re.MULTILINE))


def declared(cls: type) -> dict[str, str]:
    """Return key to default of an options class, as the document writes it; sections of their own are left out."""
    return {f.name: shown(f) for f in attrs.fields(cls) if not attrs.has(type(f.default))}


def shown(field: attrs.Attribute[Any]) -> str:
    default = field.default.factory() if isinstance(field.default, attrs.Factory) else field.default  # type: ignore[arg-type]
    if default is attrs.NOTHING:
        return "required"
    if default is None:
        return "none"
    return f"`{json.dumps(list(default) if isinstance(default, tuple) else default)}`"


def sections(cls: type, prefix: str = "") -> Iterator[tuple[str, type]]:
    """Yield every table of a config with its class."""
    for name, hint in get_type_hints(cls).items():
        for part in (hint, *get_args(hint)):
            if attrs.has(part):
                yield f"[{prefix}{name}]", part
                yield from sections(part, f"{prefix}{name}.")


@pytest.mark.parametrize(("heading", "cls"), [item for item in sections(Config) if item[0] == "[taskset]" or item[1] is not TasksetConfig])
def test_every_key_of_a_section_is_documented_with_its_default(heading: str, cls: type) -> None:
    assert documented(heading) == declared(cls)


def registered() -> Iterator[tuple[str, type]]:
    host = PluginHost.load()
    for info in host.plugins:
        for entry in info.provides if info.distribution in OURS else ():
            kind, name = entry.split(" ", 1)
            options = getattr(host.get(kind, name), "Options", None)
            if kind in ("agent", "taskset", "reward", "sandbox") and attrs.fields(options):
                yield entry, options


@pytest.mark.parametrize(("entry", "options"), list(registered()))
def test_every_option_of_what_comes_with_longrein_is_documented(entry: str, options: type) -> None:
    assert documented(entry) == declared(options)


def test_the_smallest_config_is_one() -> None:
    code, *_ = re.findall(r"```toml\n(.*?)```", DOC, re.DOTALL)
    config = from_mapping(tomllib.loads(code))
    assert (config.taskset.name, list(config.agents)) == ("practice", ["aider"])
