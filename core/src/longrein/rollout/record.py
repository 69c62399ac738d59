"""The run folder: config, environment, one JSON line for each rollout, group and metric, workspaces and a summary."""

from __future__ import annotations

import itertools
import json
import os
import platform
import time
import zipfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import tomli_w
from attrs import evolve

from longrein.config import Config
from longrein.errors import ConfigError, RecordError
from longrein.model import PublicTask, Rollout, Task
from longrein.rollout.serialize import SCHEMA_VERSION, check_version, plain, public_from_json, rollout_from_json, rollout_to_json

PACKAGES = ("longrein", "torch", "transformers", "trl", "openenv", "datasets", "accelerate", "pluggy", "attrs")


class RunRecorder:
    """Writes a run folder. Every line is whole: a torn last line of a killed run is cut before the first append.

    Args:
        folder: the run folder; made when missing.
        exist_ok: True to go on in a folder that holds a run already.
    """

    def __init__(self, folder: Path, *, exist_ok: bool = False) -> None:
        if not exist_ok and (folder / "rollouts.jsonl").exists():
            raise ConfigError(f"{folder} holds a run already; choose another --out, or --resume {folder}")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("tasks.jsonl", "rollouts.jsonl", "groups.jsonl", "metrics.jsonl"):
            _cut_torn_line(folder / name)
        self._tasks = set(read_tasks(folder))

    def start(self, config: Config, **environment: Any) -> None:
        """Write the resolved config and the environment; keys of endpoints are never part of either."""
        write_whole(self.folder / "config.toml", config_toml(config))
        versions = {name: _version(name) for name in PACKAGES}
        self._json(
            "environment.json",
            {
                "python": platform.python_version(),
                "platform": platform.platform(),
                "cpus": os.cpu_count(),
                "packages": {name: v for name, v in versions.items() if v},
                **environment,
            },
        )

    def task(self, task: Task) -> None:
        """Append what agents are given of a task, once; its sessions began from these files. Nothing hidden is written."""
        key = (task.taskset, task.id, task.digest)
        if key not in self._tasks:
            self._tasks.add(key)
            names = {"taskset": task.taskset, "task_id": task.id, "task_digest": task.digest}
            self._line("tasks.jsonl", {"schema_version": SCHEMA_VERSION, **names, "public": plain(task.public)})

    def rollout(self, rollout: Rollout) -> None:
        """Append a rollout and keep its final workspace as an archive."""
        whole = workspace_archive(self.folder, rollout.id)
        whole.parent.mkdir(exist_ok=True)
        partial = whole.with_name(f".{whole.name}.part")
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as archive:
            for path, content in sorted(rollout.session.workspace.items()):
                archive.writestr(path, content)
        partial.replace(whole)
        self._line("rollouts.jsonl", rollout_to_json(rollout))

    def group(self, values: Mapping[str, Any]) -> None:
        """Append what became of a group: rewards, baseline, advantages, rows sent, or why it was skipped."""
        self._line("groups.jsonl", {"schema_version": SCHEMA_VERSION, **values})

    def metrics(self, values: Mapping[str, Any]) -> None:
        """Append one line of metrics."""
        self._line("metrics.jsonl", {"schema_version": SCHEMA_VERSION, **values})

    def summary(self, values: Mapping[str, Any]) -> Path:
        """Write summary.json whole and return its path."""
        return self._json("summary.json", values)

    def _line(self, name: str, values: Mapping[str, Any]) -> None:
        data = (json.dumps(values, ensure_ascii=False, separators=(",", ":")) + "\n").encode("utf-8", "surrogatepass")
        with (self.folder / name).open("ab") as file:
            file.write(data)

    def _json(self, name: str, values: Mapping[str, Any]) -> Path:
        text = json.dumps({"schema_version": SCHEMA_VERSION, **plain(values)}, indent=2, ensure_ascii=False)
        return write_whole(self.folder / name, text + "\n")


def write_whole(path: Path, text: str) -> Path:
    """Write a file such that a reader finds the old one or all of the new one; return its path."""
    partial = path.with_name(f".{path.name}.part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
    return path


def read_rollouts(folder: Path, *, workspaces: bool = False) -> Iterator[Rollout]:
    """Yield the rollouts of a run folder in the order they finished; a torn last line is left out.

    Args:
        folder: a run folder, or a file of rollouts that `regrade` wrote there.
        workspaces: True to load the final workspaces too.

    Raises:
        RecordError: the folder holds no run, or a line is damaged.
    """
    for rollout in each_rollout(folder):
        if isinstance(rollout, RecordError):
            raise rollout
        if workspaces:
            run = folder.parent if folder.is_file() else folder
            rollout = evolve(rollout, session=evolve(rollout.session, workspace=read_workspace(run, rollout.id)))
        yield rollout


def each_rollout(folder: Path) -> Iterator[Rollout | RecordError]:
    """Return the rollout of every line, or what is wrong with the line; see `read_rollouts`.

    Raises:
        RecordError: the folder holds no run.
    """
    path = folder if folder.is_file() else folder / "rollouts.jsonl"
    if not path.is_file():
        raise RecordError(f"{folder} holds no run: there is no rollouts.jsonl")
    return _each_rollout(path)


def _each_rollout(path: Path) -> Iterator[Rollout | RecordError]:
    for number, values in _each_line(path):
        try:
            yield values if isinstance(values, RecordError) else rollout_from_json(values)
        except RecordError as error:
            yield RecordError(f"{path} line {number}: {error}")


def read_tasks(folder: Path) -> dict[tuple[str, str, str], PublicTask]:
    """Return the public part of a run's tasks by task set, task id and digest; empty when the run has recorded none."""
    lines = read_lines(folder / "tasks.jsonl")
    return {(line["taskset"], line["task_id"], line["task_digest"]): public_from_json(line["public"]) for line in lines}


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines, none when it is missing; a torn last line is left out.

    Raises:
        RecordError: a line is damaged or has another schema version.
    """
    for _, values in _each_line(path):
        if isinstance(values, RecordError):
            raise values
        yield values


def _each_line(path: Path) -> Iterator[tuple[int, dict[str, Any] | RecordError]]:
    if not path.is_file():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                values = json.loads(line.decode("utf-8", "surrogatepass"))
                check_version(values)
            except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
                yield number, RecordError(f"{path} line {number} is damaged: {error}")
            except RecordError as error:
                yield number, RecordError(f"{path} line {number}: {error}")
            else:
                yield number, values


def read_workspace(folder: Path, rollout_id: str) -> dict[str, bytes]:
    """Return path to content of a rollout's final workspace."""
    with zipfile.ZipFile(workspace_archive(folder, rollout_id)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def workspace_archive(folder: Path, rollout_id: str) -> Path:
    """Return the path of a rollout's final workspace."""
    return folder / "workspaces" / f"{file_name(rollout_id)}.zip"


def file_name(rollout_id: str) -> str:
    """Return a rollout's id with nothing in it that a file's name cannot hold."""
    return "".join(c if c.isalnum() or c in "-_." else "_" for c in rollout_id)


def config_toml(config: Config) -> str:
    """Return a config as TOML; unset values are left out."""
    return tomli_w.dumps(_without_none(plain(config)))


def new_run_folder(config: Config) -> Path:
    """Return the run folder that the config names, or runs/<time>-<name>, numbered when another run began in the same second."""
    if config.run.out is not None:
        return config.run.out
    folder = Path("runs") / f"{time.strftime('%Y%m%d-%H%M%S')}-{config.run.name}"
    others = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return folder if not folder.exists() else next(path for path in others if not path.exists())


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return [_without_none(item) for item in value if item is not None] if isinstance(value, list) else value


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    with path.open("rb+") as file:
        data_end = file.seek(0, os.SEEK_END)
        step = 1 << 16
        while data_end > 0:
            start = max(0, data_end - step)
            file.seek(start)
            chunk = file.read(data_end - start)
            newline = chunk.rfind(b"\n")
            if newline >= 0:
                data_end = start + newline + 1
                break
            data_end = start
        file.truncate(data_end)
