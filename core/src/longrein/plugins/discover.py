"""Finds plugins and registers the sound ones with pluggy, one by one and under guard."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import pluggy

from longrein.errors import PluginError, nearest
from longrein.hookspecs import OVERRIDES, PROJECT, REGISTRIES, SDK_VERSION
from longrein.plugins.guard import ESCAPES, describe
from longrein.plugins.info import PluginInfo

HOOKS = (*REGISTRIES, *OVERRIDES)
DISABLE = "LONGREIN_PLUGINS_DISABLE"


class Unfit(Exception):
    """A plugin that cannot be registered; the text is the reason."""


def installed(manager: pluggy.PluginManager) -> list[PluginInfo]:
    """Register every plugin of the entry-point group and return what became of each."""
    words = [word.strip() for word in os.environ.get(DISABLE, "").split(",") if word.strip()]
    found = [(point, _of_point(point)) for point in sorted(entry_points(group=PROJECT), key=lambda p: (p.name, p.value))]
    infos = []
    open_ = [info for _, info in found if not any(map(info.answers_to, words))]
    times = Counter(info.name for info in open_)
    for point, info in found:
        if info not in open_:
            infos.append(attrs.evolve(info, state="blocked", reason=f"named in {DISABLE}"))
        elif times[info.name] > 1:
            others = " and ".join(str(other) for other in open_ if other.name == info.name)
            infos.append(failed(info, f"entry-point name {info.name!r} is used by {others}; uninstall one, or block one with {DISABLE}"))
        else:
            infos.append(register(manager, info, point.load))
    return infos


def resolved(word: str, folder: Path) -> str:
    """Return a name of `[plugins] use` that holds in every folder: that of a file becomes its whole path."""
    return str((folder / word).resolve()) if word.endswith(".py") or "/" in word else word


def named(manager: pluggy.PluginManager, word: str, known: Sequence[PluginInfo]) -> PluginInfo:
    """Register the module or file that a config names and that no entry point gave.

    Raises:
        PluginError: there is no such module or file; a broken one comes back as failed.
    """
    if "/" in word:
        path = Path(word)
        if not path.is_file():
            raise PluginError(f"[plugins] use: there is no file {path}; files are looked up from the config's folder")
        return register(manager, PluginInfo(path.name, "file", word), functools.partial(run_file, path, "file"))
    try:
        exists = importlib.util.find_spec(word) is not None
    except (ImportError, ValueError):
        exists = False
    if not exists:
        names = sorted({name for info in known for name in (info.name, info.origin.split(".")[0])})
        raise PluginError(
            f"[plugins] use: no plugin or module {word!r}; known: {', '.join(names) or 'none'}{nearest(word, names)}. "
            "Install its package, or write a file as './name.py'"
        )
    return register(manager, PluginInfo(word, "module", word), functools.partial(importlib.import_module, word))


def register(manager: pluggy.PluginManager, info: PluginInfo, load: Callable[[], Any]) -> PluginInfo:
    """Load a plugin and register it with pluggy; whatever goes wrong makes it failed."""
    if manager.has_plugin(info.name):
        return failed(info, f"another plugin is named {info.name!r}; rename this one")
    try:
        plugin = load()
    except ESCAPES as error:
        return failed(info, f"cannot be loaded: {describe(error)}")
    try:
        info = attrs.evolve(info, sdk=_sdk_version(plugin))
        hooks = _checked_hooks(manager, plugin)
        manager.register(plugin, name=info.name)
    except (Unfit, ValueError) as error:
        return failed(info, str(error))
    except pluggy.PluginValidationError as error:
        if manager.is_registered(plugin):  # pluggy before 1.7 has put it in by then
            manager.unregister(plugin)
        return failed(info, " ".join(str(error).split()))
    except ESCAPES as error:
        return failed(info, f"cannot be registered: {describe(error)}")
    return attrs.evolve(info, hooks=hooks)


def failed(info: PluginInfo, reason: str) -> PluginInfo:
    """Return `info` as failed for `reason`."""
    return attrs.evolve(info, state="failed", reason=reason)


def _checked_hooks(manager: pluggy.PluginManager, plugin: Any) -> tuple[str, ...]:
    """Return the hooks a plugin implements, or say why it is unfit."""
    version = _sdk_version(plugin)
    if version > SDK_VERSION:
        raise Unfit(f"is too new: written for SDK {version}, this longrein has SDK {SDK_VERSION}; upgrade longrein")
    hooks = []
    for name in dir(plugin):
        options = manager.parse_hookimpl_opts(plugin, name)
        if options is None and name in HOOKS and manager.parse_hookspec_opts(plugin, name) is None:
            raise Unfit(f"{name} is not marked with @longrein.hookimpl")
        if options is None:
            continue
        hook = options.get("specname") or name
        if hook not in HOOKS:
            raise Unfit(f"implements an unknown hook {hook!r}{nearest(hook, HOOKS)}")
        if options.get("wrapper") or options.get("hookwrapper"):
            raise Unfit(f"{hook} is a wrapper; longrein asks plugins one by one and has no wrappers")
        hooks.append(hook)
    if not hooks:
        raise Unfit("implements no hook; mark functions such as longrein_agents() with @longrein.hookimpl")
    return tuple(hooks)


def _sdk_version(plugin: Any) -> int:
    """Return the SDK version that a plugin states, itself or in its module; 1 when it states none."""
    module = sys.modules.get(getattr(plugin, "__module__", None) or "")
    version = getattr(plugin, "LONGREIN_SDK", getattr(module, "LONGREIN_SDK", 1))
    if type(version) is not int:
        raise Unfit(f"LONGREIN_SDK must be a whole number, got {version!r}")
    return version


def _of_point(point: EntryPoint) -> PluginInfo:
    distribution = point.dist
    return PluginInfo(
        point.name,
        "installed",
        point.module,
        distribution=distribution.name if distribution else None,
        version=distribution.version if distribution else None,
    )


def run_file(path: Path, kind: str) -> ModuleType:
    """Return a Python file as a module; files of a `kind` have names of their own.

    Raises:
        OSError: it cannot be read. Whatever the file itself raises escapes too.
    """
    # A name in sys.modules: attrs and pickle look classes up by their module.
    name = f"longrein_{kind}_" + re.sub(r"\W", "_", path.stem)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
