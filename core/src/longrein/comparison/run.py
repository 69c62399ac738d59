"""Make the rollouts of a comparison and say what they show."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from attrs import evolve, frozen

from longrein.comparison.cells import check_same_config, made_already, plan
from longrein.comparison.checkpoints import find_checkpoints
from longrein.comparison.figures import compare_rollouts
from longrein.comparison.files import write_comparison
from longrein.comparison.model import ComparedPolicy, Comparison
from longrein.config import Config, PluginsConfig, task_sources
from longrein.errors import RunStopped
from longrein.model import Rollout
from longrein.plugins import PluginHost
from longrein.rollout.batch import make_rollouts
from longrein.rollout.check import check_names
from longrein.rollout.policy import need_extra
from longrein.rollout.record import RunRecorder, new_run_folder, read_rollouts
from longrein.rollout.spec import RolloutSpec, SessionSpec
from longrein.rollout.summary import Cell, summarize
from longrein.rollout.tasks import load_all
from longrein.toolchain.lock import locked

Log = Callable[[str], None]


@frozen
class CompareResult:
    """What `compare` made."""

    folder: Path
    comparison: Comparison


@frozen
class _Part:
    """The cells of one policy, and how it is served."""

    policy: ComparedPolicy
    config: Config
    served_name: str | None
    cells: Sequence[RolloutSpec]


def compare(
    config: Config,
    *,
    resume: Path | None = None,
    host: PluginHost | None = None,
    log: Log,
    progress: Callable[[Rollout, int], None] | None = None,
    started: Callable[[SessionSpec], None] | None = None,
) -> CompareResult:
    """Run every agent of a config on the same tasks, with one policy or with each of several; see `longrein.api.compare`."""
    need_extra("run", "openenv", "uvicorn", "httpx", "scipy")
    host = host or PluginHost.load(config.plugins.use)
    config = evolve(config, plugins=PluginsConfig(host.use))  # files by their whole path, as the record must name them
    check_names(config, host)
    if resume is not None:
        check_same_config(resume, config)
    parts = list(_parts(config, host, log))
    with ExitStack() as stack:
        recorder, made = _open(resume, config, parts, stack, log)
        missing = [evolve(part, cells=[cell for cell in part.cells if cell.id not in made]) for part in parts]
        total = sum(len(part.cells) for part in missing)
        if made:
            log(f"{len(made)} of {len(made) + total} rollouts are made already")

        def finished(rollout: Rollout) -> None:
            if progress:
                progress(rollout, total)

        try:
            for part in missing:
                if part.cells:
                    asyncio.run(_make(part, host, recorder, finished, started, log))
        except RunStopped:
            log(f"what was made is in {recorder.folder}")
            raise
        finally:
            comparison = _conclude(recorder, config, parts)
    if not any(figures.scored for figures in comparison.figures):
        first = next(read_rollouts(recorder.folder))
        raise RunStopped(f"no rollout could be scored; the first was {first.id}: {first.outcome.kind}: {first.outcome.reason}")
    return CompareResult(recorder.folder, comparison)


def _parts(config: Config, host: PluginHost, log: Log) -> Iterator[_Part]:
    tasks = load_all(task_sources(config), host)
    if not config.compare.checkpoints:
        yield _Part(ComparedPolicy(""), config, None, plan(config, tasks))
        return
    checkpoints = find_checkpoints(config, host, log=log)
    for item in checkpoints:
        served = evolve(config, policy=evolve(config.policy, model=str(item.model)))
        # One name for all: it stands in agents' prompts, and two names would be a difference that is none of the policies'.
        yield _Part(item.policy, served, checkpoints[0].base, plan(config, tasks, item.policy.name))


def _open(resume: Path | None, config: Config, parts: Sequence[_Part], stack: ExitStack, log: Log) -> tuple[RunRecorder, set[str]]:
    """Return the recorder of the run folder and the ids of the cells that it holds; no other process works in it meanwhile."""
    folder = resume or new_run_folder(config)
    fresh = None if resume else RunRecorder(folder)
    stack.enter_context(locked(folder / ".lock", lambda: log(f"another process works in {folder}; waiting for it")))
    cells = [cell for part in parts for cell in part.cells]
    made = set() if fresh else made_already(folder, cells)
    recorder = fresh or RunRecorder(folder, exist_ok=True)
    if fresh or not (folder / "environment.json").is_file():  # the first start may have been killed before it was written
        recorder.start(config, cells=len(cells))
    return recorder, made


async def _make(
    part: _Part,
    host: PluginHost,
    recorder: RunRecorder,
    finished: Callable[[Rollout], None],
    started: Callable[[SessionSpec], None] | None,
    log: Log,
) -> None:
    if part.policy.name:
        log(f"policy {part.policy.name}: {len(part.cells)} rollouts")
    await make_rollouts(
        part.config, host, part.cells, recorder=recorder, finished=finished, started=started, served_name=part.served_name, log=log
    )


def _conclude(recorder: RunRecorder, config: Config, parts: Sequence[_Part]) -> Comparison:
    sides: dict[str, list[Cell]] = {}

    def counted() -> Iterator[Rollout]:
        for rollout in read_rollouts(recorder.folder):
            sides.setdefault(rollout.policy or "run", []).append(Cell.of(rollout))
            yield rollout

    if not (recorder.folder / "rollouts.jsonl").is_file():  # nothing was made
        return Comparison((), (), (), (), None)
    comparison = compare_rollouts(counted(), agents=tuple(config.agents), policies=[part.policy for part in parts])
    write_comparison(recorder.folder, comparison)
    recorder.summary(summarize(sides))
    return comparison
