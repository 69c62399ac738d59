"""The plugin host: finds plugins, keeps the broken ones apart, and asks the others one by one."""

from longrein.plugins.host import PluginHost
from longrein.plugins.info import PluginInfo

__all__ = ["PluginHost", "PluginInfo"]
