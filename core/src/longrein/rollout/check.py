"""What a config names, checked before anything is spent or written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from longrein import toolchain
from longrein.config import Config, TasksetConfig, task_sources
from longrein.errors import ConfigError
from longrein.options import structure
from longrein.rollout.tasks import open_taskset
from longrein.serve.vllm.toolchain import find_python

if TYPE_CHECKING:
    from longrein.plugins import PluginHost


def check_names(config: Config, host: PluginHost) -> None:
    """Refuse a config that the engine could not run.

    Args:
        config: the whole config.
        host: the loaded plugins.

    Raises:
        ConfigError, PluginError: an unknown agent, reward, verifier or sandbox, options that do not fit, or an agent that cannot use
            the tools of a task set's environments.
        MissingError: the program of an agent, or vLLM where the config asks for it, is not installed.
    """
    for name, options in config.agents.items():
        adapter = host.agent(name, options)
        if adapter.toolchain:
            toolchain.find(name, adapter.toolchain)
    if config.serves_policy and config.policy.engine == "vllm":
        find_python(config.policy.engine_python)
    host.reward(config.reward.name, config.reward.options)
    check_verifiers(config.verifiers, host)
    for part in (config, config.eval):
        for source in task_sources(part).values() if part is not None else ():
            _check_tools(config, source, host)
    backend = host.sandbox("bwrap" if config.sandbox.backend == "auto" else config.sandbox.backend)
    structure(backend.Options, config.sandbox.options, where="sandbox.options")


def _check_tools(config: Config, section: TasksetConfig, host: PluginHost) -> None:
    """Refuse agents that could only stand idle in an environment. Those that ask no model are floors and ceilings, and stay."""
    if not open_taskset(section, host).has_environments:
        return
    for name in config.agents:
        can = host.agent_class(name).capabilities
        if can.calls_model and not can.mcp:
            takers = ", ".join(other for other in host.names("agent") if host.agent_class(other).capabilities.mcp)
            raise ConfigError(
                f"agent {name!r} cannot use the tools of an environment, which {section.name!r} needs; agents that can: {takers}"
            )


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
