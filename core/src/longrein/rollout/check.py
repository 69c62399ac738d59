"""What a config names, checked before anything is spent or written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from longrein import toolchain
from longrein.config import Config
from longrein.options import structure

if TYPE_CHECKING:
    from longrein.plugins import PluginHost


def check_names(config: Config, host: PluginHost) -> None:
    """Refuse a config that the engine could not run.

    Args:
        config: the whole config.
        host: the loaded plugins.

    Raises:
        ConfigError, PluginError: an unknown agent, reward, verifier or sandbox, or options that do not fit.
        MissingError: the program of an agent is not installed.
    """
    for name, options in config.agents.items():
        adapter = host.agent(name, options)
        if adapter.toolchain:
            toolchain.find(name, adapter.toolchain)
    host.reward(config.reward.name, config.reward.options)
    check_verifiers(config.verifiers, host)
    backend = host.sandbox("bwrap" if config.sandbox.backend == "auto" else config.sandbox.backend)
    structure(backend.Options, config.sandbox.options, where="sandbox.options")


def check_verifiers(verifiers: Mapping[str, Mapping[str, Any]], host: PluginHost) -> None:
    """Refuse a verifier or option that is not known, which would otherwise make every grade unscorable.

    Args:
        verifiers: verifier name to its options.
        host: the loaded plugins.

    Raises:
        ConfigError, PluginError: an unknown verifier, or options that do not fit.
    """
    for name, options in verifiers.items():
        host.verifier(name, options).close()
