"""What `longrein doctor` checks."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import subprocess
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from longrein import toolchain

if TYPE_CHECKING:
    from longrein.plugins import PluginHost


@frozen
class Check:
    """One line of `longrein doctor`."""

    name: str
    state: Literal["ok", "missing"]
    found: str
    mend: str = ""
    """The command or step that mends it."""
    required: bool = False
    optional: bool = False
    """Something else does its work here already."""


def machine_checks(host: PluginHost) -> list[Check]:
    """Return every check, in the order of the parts that need them."""
    return [_python(), _node(), *_extras(), *_sandboxes(host), *_agents(host), *_plugins(host)]


def _python() -> Check:
    return Check("python", "ok", platform.python_version(), required=True)


def _node() -> Check:
    mend = "install Node.js 18 or newer (needed for agents from npm)"
    node = shutil.which("node")
    if node is None:
        return Check("node", "missing", "", mend)
    try:
        version = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError) as error:
        return Check("node", "missing", f"{node} does not run: {error}", mend)
    return Check("node", "ok", version)


def _extras() -> list[Check]:
    extras = {"run": ("openenv", "uvicorn", "httpx"), "train": ("torch", "trl", "transformers")}
    checks = []
    for extra, modules in extras.items():
        absent = [name for name in modules if importlib.util.find_spec(name) is None]
        checks.append(
            Check(
                f"extra {extra}",
                "missing" if absent else "ok",
                ", ".join(m for m in modules if m not in absent),
                f"pip install 'longrein[{extra}]'" if absent else "",
                required=extra == "run",
            )
        )
    return checks


def _sandboxes(host: PluginHost) -> list[Check]:
    backends = {name: host.sandbox(name) for name in host.names("sandbox")}
    whys = {name: backend.unavailable() for name, backend in backends.items()}
    closed = any(backend.is_security_boundary and not whys[name] for name, backend in backends.items())
    checks = []
    for name, backend in backends.items():
        why = whys[name]
        found = "; ".join(f"{what}: {how}" for what, how in ({} if why else backend.protections()).items())
        checks.append(Check(f"sandbox {name}", "missing" if why else "ok", found, why or "", optional=closed))
    return checks


def _agents(host: PluginHost) -> list[Check]:
    checks = []
    for name in host.names("agent"):
        spec = host.agent_class(name).toolchain
        if spec is not None:
            state = toolchain.state(name, spec)
            ok = state.state == "installed"
            checks.append(
                Check(f"agent {name}", "ok" if ok else "missing", state.version or "", "" if ok else f"longrein agents install {name}")
            )
    return checks


def _plugins(host: PluginHost) -> list[Check]:
    return [Check(f"plugin {p.name}", "missing", p.state, p.reason) for p in host.plugins if p.state != "ok"]
