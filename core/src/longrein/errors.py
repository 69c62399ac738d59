"""Every error longrein raises on purpose.

    LongreinError
    ├── ConfigError(ValueError)          a config, flag or option that cannot be used
    │   └── UnknownNameError(LookupError)  a name nobody registered; carries the known names
    ├── PluginError(RuntimeError)        a plugin that the config asks for cannot be used
    ├── MissingError(RuntimeError)       a toolchain, program or extra is not installed
    ├── TaskError(ValueError)            a task or row that cannot be loaded
    ├── CaptureError(RuntimeError)       the policy server cannot be captured from
    ├── SandboxError(RuntimeError)       a sandbox cannot be made
    ├── EnvironmentFailed(RuntimeError)  an environment cannot be opened, does not reset cleanly or gives no reward
    ├── ServeError(RuntimeError)         the embedded policy server refused or failed
    ├── RecordError(ValueError)          a record cannot be read (version, damage)
    └── RunStopped(RuntimeError)         a run ended before its time, with the reason

Commands print the message and exit 2 for ConfigError, PluginError, MissingError and TaskError, 1 for the rest.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LongreinError(Exception):
    """Base of every error raised on purpose; its text is written for the person who reads it."""

    exit_code = 1


class ConfigError(LongreinError, ValueError):
    """A config, flag or option that cannot be used."""

    exit_code = 2


class UnknownNameError(ConfigError, LookupError):
    """A name that nobody registered.

    Args:
        kind: what was looked up, for example "agent".
        name: what was given.
        known: the names that exist.
        hint: what to do next, a whole sentence.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], *, hint: str = "") -> None:
        self.kind, self.name, self.known = kind, name, tuple(sorted(known))
        text = f"unknown {kind} {name!r}; known: {', '.join(self.known) or 'none'}{nearest(name, self.known)}"
        super().__init__(f"{text}{'' if text.endswith('?') else '.'} {hint}" if hint else text)


class PluginError(LongreinError, RuntimeError):
    """A plugin that the config asks for cannot be used."""

    exit_code = 2


class MissingError(LongreinError, RuntimeError):
    """A toolchain, program or extra is not installed; the message has the command that installs it."""

    exit_code = 2


class TaskError(LongreinError, ValueError):
    """A task or row that cannot be loaded."""

    exit_code = 2


class CaptureError(LongreinError, RuntimeError):
    """The policy server cannot be captured from."""


class SandboxError(LongreinError, RuntimeError):
    """A sandbox cannot be made."""


class EnvironmentFailed(LongreinError, RuntimeError):
    """An environment cannot be opened, does not reset cleanly or gives no reward: its session is unscorable."""


class ServeError(LongreinError, RuntimeError):
    """The embedded policy server refused or failed."""


class RecordError(LongreinError, ValueError):
    """A record cannot be read."""


class RunStopped(LongreinError, RuntimeError):
    """A run ended before its time; the message is the reason."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return '; did you mean X?' for the closest known name, or an empty string."""
    match = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {match[0]!r}?" if match else ""
