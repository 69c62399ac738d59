"""The classes that plugins register, by kind and name; a name that two give belongs to neither."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pluggy

from longrein.agent import AgentAdapter
from longrein.plugins.discover import Unfit, failed
from longrein.plugins.guard import ESCAPES, describe
from longrein.plugins.info import PluginInfo
from longrein.reward import RewardFunction
from longrein.sandbox import Sandbox
from longrein.verifier import TaskSet, Verifier

KINDS: Mapping[str, tuple[str, type]] = {
    "agent": ("longrein_agents", AgentAdapter),
    "verifier": ("longrein_verifiers", Verifier),
    "taskset": ("longrein_tasksets", TaskSet),
    "reward": ("longrein_rewards", RewardFunction),
    "sandbox": ("longrein_sandboxes", Sandbox),
}
"""Kind to its registry hook and the base of what it registers."""
BUILTIN = "longrein.builtin"

Key = tuple[str, str]


@attrs.frozen
class Registry:
    """What can be looked up, and what could be if its plugin worked."""

    classes: Mapping[Key, type]
    lost: Mapping[Key, str]
    """Names whose plugin failed, with the reason."""

    def names(self, kind: str) -> list[str]:
        """Return the names of a kind, sorted."""
        return sorted(name for found, name in self.classes if found == kind)


def collect(manager: pluggy.PluginManager, infos: Sequence[PluginInfo]) -> tuple[Registry, list[PluginInfo]]:
    """Ask every sound plugin for its classes.

    Returns:
        The registry, and `infos` with what each provides; plugins that gave something unfit or a name that another
        gave too are failed. longrein's own plugin stays, without that name.
    """
    given: list[dict[Key, type]] = []
    after = []
    for info in infos:
        keys: dict[Key, type] = {}
        if info.state == "ok":
            try:
                keys = _classes(manager, info.name)
            except Unfit as error:
                info = failed(info, str(error))
        given.append(keys)
        after.append(attrs.evolve(info, provides=tuple(" ".join(key) for key in keys)))
    givers: dict[Key, list[PluginInfo]] = defaultdict(list)
    for info, keys in zip(after, given, strict=True):
        for key in keys:
            givers[key].append(info)
    shared = {key: _conflict(key, who) for key, who in givers.items() if len(who) > 1}
    classes: dict[Key, type] = {}
    lost: dict[Key, str] = {}
    for index, keys in enumerate(given):
        conflict = next((shared[key] for key in keys if key in shared), None)
        if conflict and after[index].origin != BUILTIN:
            lost |= dict.fromkeys(keys, f"plugin {after[index]} failed: {conflict}")
            after[index] = failed(after[index], conflict)
        else:
            classes |= {key: cls for key, cls in keys.items() if key not in shared}
    return Registry(classes, lost), after


def _conflict(key: Key, who: Sequence[PluginInfo]) -> str:
    return f"{key[0]} {key[1]!r} is registered by {' and '.join(map(str, who))}; none of them answers, uninstall or block all but one"


def _classes(manager: pluggy.PluginManager, plugin: str) -> dict[Key, type]:
    classes: dict[Key, type] = {}
    for kind, (hook, base) in KINDS.items():
        for impl in getattr(manager.hook, hook).get_hookimpls():
            if impl.plugin_name != plugin:
                continue
            try:
                answer = list(impl.function())
            except ESCAPES as error:
                raise Unfit(f"{hook} raised {describe(error)}") from error
            for cls in answer:
                key = (kind, _checked_name(cls, base, hook))
                if key in classes:
                    raise Unfit(f"{hook} answered {kind} {key[1]!r} twice")
                classes[key] = cls
    return classes


def _checked_name(cls: Any, base: type, hook: str) -> str:
    """Return the name a class registers under, or say why it is unfit."""
    if not isinstance(cls, type) or not issubclass(cls, base):
        raise Unfit(f"{hook} answered {cls!r:.200}; it takes classes derived from {base.__name__}")
    name = getattr(cls, "name", None)
    if not isinstance(name, str) or not name:
        raise Unfit(f"{hook} answered {cls.__name__}, which has no `name`")
    if inspect.isabstract(cls):
        raise Unfit(f"{hook} answered {cls.__name__}, which lacks {', '.join(sorted(getattr(cls, '__abstractmethods__', ())))}")
    options = getattr(cls, "Options", None)
    if options is not None and not attrs.has(options):
        raise Unfit(f"{hook} answered {cls.__name__}, whose Options are no attrs class")
    return name
