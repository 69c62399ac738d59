"""The task set "openenv": each task is one way to reset an environment, which then acts and grades."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from attrs import asdict, fields

from longrein.environment import Environment
from longrein.errors import ConfigError, EnvironmentFailed, TaskError, UnknownNameError
from longrein.model import PublicTask, Task, TaskRef
from longrein.verifier import TaskSet
from longrein_openenv.episode import Episode
from longrein_openenv.local import LocalServer
from longrein_openenv.options import OpenEnvOptions

Row = Mapping[str, Any]
NOT_CONTENT = ("url", "tasks", "seeds", "first_seed", "api_key_env", "call_timeout_s", "verdict_timeout_s")
"""Options that say where and how long, and not what a task is."""


class OpenEnvTasks(TaskSet):
    """Environments of an OpenEnv server, or of classes as TRL's trainers take them."""

    name: ClassVar[str] = "openenv"
    Options: ClassVar[type] = OpenEnvOptions
    has_environments: ClassVar[bool] = True
    options: OpenEnvOptions

    def __init__(self, options: OpenEnvOptions) -> None:
        super().__init__(options)
        self._local = LocalServer(options.server) if options.server else None
        self._idle: dict[str, list[Episode]] = {}
        self._first: dict[str, tuple[Any, ...]] = {}

    def tasks(self) -> Iterator[Task]:
        """Yield a task for each row, or for each seed."""
        content = {key: value for key, value in asdict(self.options).items() if key not in NOT_CONTENT}
        plain = {f.name: _plain(value) for f in fields(OpenEnvOptions) if (value := getattr(self.options, f.name)) != f.default}
        for task_id, row in self._rows.items():
            said = json.dumps([content, row], sort_keys=True, default=str)
            digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
            yield Task(task_id, digest, PublicTask(self._prompt(row)), TaskRef(self.name, task_id, plain), "openenv")

    def hidden(self, task_id: str) -> Any:
        """Return nothing: what is hidden stays in the environment."""
        self._row(task_id)
        return None

    @asynccontextmanager
    async def environment(self, task_id: str) -> AsyncIterator[Environment]:
        """Yield the environment of a task after a reset that was clean."""
        row = self._row(task_id)
        episode = await self._take(row)
        try:
            given = row if self.options.environment_factory else {key: value for key, value in row.items() if key not in ("id", "prompt")}
            if isinstance(self.options.environment_factory, Mapping):
                given = {key: value for key, value in given.items() if key != "environment"}
            observation = await self._clean_reset(task_id, episode, given)
            apart = "\n\n" if observation and self._prompt(row) and not self.options.environment_factory else ""
            episode.observation = apart + observation
            yield episode
        finally:
            if self.options.environment_factory and episode.sound:
                self._idle.setdefault(str(row.get("environment")), []).append(episode)
            else:
                await episode.close()

    async def _clean_reset(self, task_id: str, episode: Episode, given: Row) -> str:
        """Reset, and compare what is seen first with an earlier reset: of this session where it is the task's first, else of another.

        Raises:
            EnvironmentFailed: they differ, so that rollouts of this task could not be compared.
        """
        observation = await episode.reset(given)
        if task_id not in self._first:
            before = (observation, episode.tools)
            observation = await episode.reset(given)
            self._first.setdefault(task_id, before)
        if (observation, episode.tools) != self._first[task_id]:
            raise EnvironmentFailed(
                f"task {task_id!r}: reset is not clean: it gave {self._first[task_id][0]!r:.200} first and {observation!r:.200} now. Every "
                "rollout of a task must begin alike: let reset restore all state, and draw from its seed"
            )
        return observation

    async def _take(self, row: Row) -> Episode:
        if self.options.environment_factory is not None:
            return await self._instance(row)
        from longrein_openenv.client import ServerEpisode

        url = await asyncio.to_thread(self._local.url) if self._local else self.options.url
        assert url is not None
        return await ServerEpisode.open(url, self.options, self._headers)

    async def _instance(self, row: Row) -> Episode:
        from longrein_openenv.methods import MethodEpisode, load

        if idle := self._idle.get(str(row.get("environment"))):
            return idle.pop()
        target = self.options.environment_factory
        if isinstance(target, Mapping):
            if row.get("environment") not in target:
                raise UnknownNameError("environment", str(row.get("environment")), target)
            target = target[row["environment"]]
        assert target is not None
        factory = load(target)
        return MethodEpisode(await asyncio.to_thread(factory), self.options)

    @cached_property
    def _headers(self) -> Mapping[str, str]:
        if self.options.api_key_env is None:
            return {}
        if not (key := os.environ.get(self.options.api_key_env)):
            raise ConfigError(f"api_key_env names {self.options.api_key_env!r}, which is not set in the environment")
        return {"Authorization": f"Bearer {key}"}

    @cached_property
    def _rows(self) -> dict[str, Row]:
        if self.options.tasks is None:
            numbers = range(self.options.first_seed, self.options.first_seed + self.options.seeds)
            return {f"seed-{number}": {"seed": number} for number in numbers}
        rows: dict[str, Row] = {}
        try:
            lines = self.options.tasks.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise TaskError(f"cannot read the tasks {self.options.tasks}: {error.strerror}") from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                row = _row(line, f"{self.options.tasks}, line {number}")
                rows[str(row.get("id", f"row-{number}"))] = row
        return rows

    def _row(self, task_id: str) -> Row:
        if task_id not in self._rows:
            raise TaskError(f"task set 'openenv' has no task {task_id!r}")
        return self._rows[task_id]

    def _prompt(self, row: Row) -> str:
        prompt = row.get("prompt", self.options.prompt)
        return prompt if isinstance(prompt, str) else "\n\n".join(message["content"] for message in prompt)

    def close(self) -> None:
        """End a server of our own."""
        if self._local:
            self._local.close()


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def _row(line: str, where: str) -> Row:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise TaskError(f"{where} is no JSON: {error}") from error
    if not isinstance(row, dict):
        raise TaskError(f"{where} must be an object, got {line[:100]!r}")
    prompt = row.get("prompt", "")
    if not isinstance(prompt, str) and not (
        isinstance(prompt, list) and all(isinstance(m, dict) and isinstance(m.get("content"), str) for m in prompt)
    ):
        raise TaskError(f"{where}: prompt must be a text or a list of messages with text")
    return row
