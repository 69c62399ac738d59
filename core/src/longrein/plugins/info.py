"""What is known of a plugin, whether it works or not."""

from __future__ import annotations

import re
from typing import Literal

from attrs import frozen

State = Literal["ok", "blocked", "failed"]


@frozen
class PluginInfo:
    """A plugin as `longrein plugins` lists it."""

    name: str
    """Entry-point name, module name, or file name."""
    kind: Literal["installed", "module", "file"]
    """Found through its entry point, or imported or read because the config names it."""
    origin: str
    """Dotted module, or the path of a file."""
    distribution: str | None = None
    version: str | None = None
    state: State = "ok"
    reason: str = ""
    """Why it is blocked or failed."""
    hooks: tuple[str, ...] = ()
    """The hooks it implements."""
    provides: tuple[str, ...] = ()
    """What it registers, for example "agent aider"."""
    sdk: int | None = None
    """The SDK version that it states to be written for, 1 when it states none; None when it was not loaded."""
    active: bool = False
    """True when its overrides take part, which needs its name in `[plugins] use`."""

    def answers_to(self, word: str) -> bool:
        """Return whether `word` in a config or in LONGREIN_PLUGINS_DISABLE means this plugin.

        It does when it is the plugin's name, its distribution, its module, a package above its module, or its file's path.
        """
        return (
            word == self.name
            or word == self.origin
            or (self.kind != "file" and self.origin.startswith(f"{word}."))
            or (self.distribution is not None and _canonical(word) == _canonical(self.distribution))
        )

    def __str__(self) -> str:
        where = f"{self.distribution} {self.version}" if self.distribution else self.origin
        return f"{self.name} ({where})"


def _canonical(name: str) -> str:
    """Return a distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()
