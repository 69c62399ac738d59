"""Toolchains: pinned installations of agents in a cache folder."""

from longrein.toolchain.install import install
from longrein.toolchain.spec import InstalledToolchain, ToolchainSpec
from longrein.toolchain.store import ToolchainState, cache_root, find, state

__all__ = ["InstalledToolchain", "ToolchainSpec", "ToolchainState", "cache_root", "find", "install", "state"]
