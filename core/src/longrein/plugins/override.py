"""What a plugin that takes part implements, and how it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import attrs
import pluggy

from longrein.model import Finding
from longrein.plugins.guard import ask, ask_async

T = TypeVar("T")


@attrs.frozen
class Override:
    """One plugin's implementation of one hook."""

    hook: str
    source: str
    """"plugin:NAME", as findings and `decided_by` carry it."""
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    """The arguments it takes, any of the hook's."""

    def ask(self, check: Callable[[Any], T], findings: list[Finding], **values: Any) -> T | None:
        """Return the checked answer, or None with a finding; `values` are all arguments of the hook."""
        return ask(self._bound(values), check, source=self.source, hook=self.hook, findings=findings)

    async def ask_async(self, check: Callable[[Any], T], findings: list[Finding], **values: Any) -> T | None:
        """Do what `ask` does for a hook that may be async."""
        return await ask_async(self._bound(values), check, source=self.source, hook=self.hook, findings=findings)

    def _bound(self, values: Mapping[str, Any]) -> Callable[[], Any]:
        return partial(self.function, *(values[name] for name in self.arguments))


def overrides(manager: pluggy.PluginManager, hook: str, active: Sequence[str]) -> list[Override]:
    """Return the implementations of `hook` by the plugins that take part, in their order."""
    # Walked by hand: pluggy orders by registration, does not say who answered, and one exception ends its call for all.
    found = [impl for impl in getattr(manager.hook, hook).get_hookimpls() if impl.plugin_name in active]
    found.sort(key=lambda impl: active.index(impl.plugin_name))
    return [Override(hook, f"plugin:{impl.plugin_name}", impl.function, tuple(impl.argnames)) for impl in found]
