"""task.toml: what it asks for, and that nothing in it is passed over in silence."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from longrein.errors import TaskError

DESCRIPTIVE = ("version", "schema_version", "source", "task", "metadata")
HONOURED = {
    "agent": ("timeout_sec",),
    "verifier": ("timeout_sec",),
    "environment": (
        *("build_timeout_sec", "docker_image", "cpus", "memory_mb", "memory", "storage_mb", "storage"),
        *("allow_internet", "network_mode"),
    ),
    "solution": (),
}
"""Keys that are read or, for the resources of a session, kept in the task's metadata."""
AS_HERE = {("agent", "network_mode"): "no-network", ("verifier", "network_mode"): "no-network"} | {
    ("environment", "os"): "linux",
    ("verifier", "environment_mode"): "shared",
}
"""Values that say how it is here anyway."""
RESOURCES = ("cpus", "memory_mb", "memory", "storage_mb", "storage")
VERIFIER_S = 600.0
"""Harbor's default time of a verifier."""


@frozen
class HarborSettings:
    """What of a task.toml is used."""

    docker_image: str | None = None
    verifier_timeout_s: float = VERIFIER_S
    asked: Mapping[str, Any] = field(factory=dict)
    """Resources and time that the task asks for its sessions; the limits of a run are those of its config."""


def read_settings(folder: Path, *, offline: bool) -> HarborSettings:
    """Read the task.toml of a folder.

    Args:
        folder: the task's folder.
        offline: True to take a task that asks for a network, which its sessions will not have.

    Raises:
        TaskError: it cannot be read, or asks for something that cannot be had here; the message is the reason.
    """
    try:
        values = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise TaskError(f"task.toml cannot be read: {error}") from error
    version = str(values.get("schema_version", values.get("version", "1.0")))
    if version.partition(".")[0] != "1":
        raise TaskError(f"task.toml has schema version {version}, this longrein reads 1")
    for name, value in values.items():
        if name not in DESCRIPTIVE and value:
            _check_section(name, value)
    environment = values.get("environment") or {}
    if not offline and (environment.get("allow_internet") or environment.get("network_mode") in ("public", "allowlist")):
        raise TaskError("it asks for a network, which sessions here do not have; the option offline = true takes it all the same")
    asked = {key: environment[key] for key in RESOURCES if environment.get(key)}
    if limit := (values.get("agent") or {}).get("timeout_sec"):
        asked["timeout_s"] = limit
    timeout_s = (values.get("verifier") or {}).get("timeout_sec") or VERIFIER_S
    if not isinstance(timeout_s, (int, float)) or timeout_s <= 0:
        raise TaskError(f"task.toml: verifier.timeout_sec must be a number above 0, got {timeout_s!r}")
    return HarborSettings(environment.get("docker_image") or None, float(timeout_s), asked)


def _check_section(name: str, section: Any) -> None:
    if name not in HONOURED or not isinstance(section, dict):
        raise TaskError(f"task.toml asks for {name}, which is not honoured here")
    for key, value in section.items():
        if value and key not in HONOURED[name] and AS_HERE.get((name, key)) != value:
            raise TaskError(f"task.toml asks for {name}.{key}, which is not honoured here")
