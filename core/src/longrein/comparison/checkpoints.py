"""What `--checkpoint` names: a policy to serve, and the agents that it was trained through."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, frozen

from longrein.comparison.model import ComparedPolicy
from longrein.config import CompareConfig, Config, PolicyConfig, RunConfig, TrainConfig, load
from longrein.errors import ConfigError
from longrein.rollout.policy import BUILT, resolve_model
from longrein.rollout.record import config_toml

if TYPE_CHECKING:
    from longrein.plugins import PluginHost

Log = Callable[[str], None]
PRACTICE = "practice"


@frozen
class Checkpoint:
    """A policy that can be served."""

    policy: ComparedPolicy
    model: Path
    base: str
    """Name under which the policy was served while it was trained: agents see it in their prompts."""


def find_checkpoints(config: Config, host: PluginHost, *, log: Log) -> list[Checkpoint]:
    """Return the policies of [compare] checkpoints, each with a name of its own.

    Raises:
        ConfigError: one cannot be found, two are the same, or [policy] url is set.
    """
    given = config.compare.checkpoints
    if config.policy.url is not None:
        raise ConfigError("checkpoints are served by longrein itself; leave out [policy] url, or compare without --checkpoint")
    if twice := [text for text, times in Counter(given).items() if times > 1]:
        raise ConfigError(f"checkpoint {twice[0]!r} is named twice")
    found = [_find(text, config, host, log) for text in given]
    names = Counter(checkpoint.policy.name for checkpoint in found)
    # Two runs in different places may have the same name; then the whole path tells them apart.
    return [
        evolve(item, policy=evolve(item.policy, name=text)) if names[item.policy.name] > 1 else item
        for item, text in zip(found, given, strict=True)
    ]


def config_of_run(checkpoints: Sequence[str]) -> dict[str, Any] | None:
    """Return a config, as plain data, for comparing checkpoints: that of the first run folder among them; None when there is none.

    The tasks are those that the run evaluated on, never those it was trained on; without any there is no [taskset]. Agents,
    limits, sandbox, verifiers and sampling are the run's.
    """
    folder = next((folder for text in checkpoints if (folder := _split(text)[0])), None)
    if folder is None:
        return None
    run = load(folder / "config.toml")
    config = evolve(
        run,
        run=RunConfig("compare", seed=run.run.seed),
        taskset=run.eval.taskset if run.eval else run.taskset,
        tasksets=run.eval.tasksets if run.eval else run.tasksets,
        policy=evolve(run.policy, model=PRACTICE, url=None, api_key_env=None),
        train=TrainConfig(sampling=run.train.sampling, dtype=run.train.dtype),
        eval=None,
        compare=CompareConfig(run.eval.samples) if run.eval else CompareConfig(),
    )
    values = tomllib.loads(config_toml(config))
    return values if run.eval else {key: value for key, value in values.items() if key not in ("taskset", "tasksets")}


def _split(text: str) -> tuple[Path | None, str]:
    """Return the run folder that a checkpoint belongs to, None for none, and its step ("" is the newest)."""
    path = Path(text)
    if _is_run(path):
        return path, ""
    if path.name == "model" and _is_run(path.parent):
        return path.parent, ""
    if path.parent.name == "checkpoints" and _is_run(path.parent.parent):
        return path.parent.parent, path.name.rpartition("-")[2]
    run, _, step = text.rpartition("@")
    return (Path(run), step) if run and step.isdecimal() and _is_run(Path(run)) else (None, "")


def _is_run(folder: Path) -> bool:
    return (folder / "config.toml").is_file() and (folder / "rollouts.jsonl").is_file()


def _find(text: str, config: Config, host: PluginHost, log: Log) -> Checkpoint:
    run, step = _split(text)
    if run is None:
        return _model(text, config, host, log)
    trained = load(run / "config.toml")
    if trained.policy.url is not None and step == "0":
        raise ConfigError(f"{text}: the run did not start from a folder but from {trained.policy.model!r} at a server; name a model folder")
    name = run.resolve().name + (f"@{step}" if step else "")
    if step == "0":
        return Checkpoint(ComparedPolicy(name, ()), resolve_model(trained, host, log=log), _base(trained))
    return Checkpoint(ComparedPolicy(name, _trained_with(trained, host)), _saved(run, step), _base(trained))


def _trained_with(trained: Config, host: PluginHost) -> tuple[str, ...]:
    """Return the agents of a run that call the model; one that is not installed here is taken to."""
    known = host.names("agent")
    return tuple(name for name in trained.agents if name not in known or host.agent_class(name).capabilities.calls_model)


def _base(trained: Config) -> str:
    return Path(trained.policy.model).name


def _saved(run: Path, step: str) -> Path:
    """Return the folder of a step, or of the newest model of a run."""
    from longrein.training.state import last_checkpoint

    if step:
        folder: Path | None = run / "checkpoints" / f"checkpoint-{step}"
    else:
        folder = run / "model" if (run / "model" / "config.json").is_file() else last_checkpoint(run)
    if folder is None or not (folder / "config.json").is_file():
        whole = sorted(int(path.parent.name.rpartition("-")[2]) for path in (run / "checkpoints").glob("checkpoint-*/config.json"))
        known = ", ".join(f"{run}@{number}" for number in [0, *whole])
        adapter = folder is not None and (folder / "adapter_config.json").is_file()
        why = " but a LoRA adapter, which is merged into a model at the run's end" if adapter else ""
        raise ConfigError(f"{run} has no model{f' of step {step}' if step else ''}{why}; it has {known}")
    return folder


def _model(text: str, config: Config, host: PluginHost, log: Log) -> Checkpoint:
    """Return a policy that longrein makes, or a model folder of which nothing else is known."""
    if text in BUILT:
        return Checkpoint(ComparedPolicy(text, ()), resolve_model(evolve(config, policy=PolicyConfig(text)), host, log=log), text)
    folder = Path(text)
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"checkpoint {text!r} is neither a run folder, RUN@STEP (RUN@0 is what the run started from), a folder with a transformers "
            f"model, nor one of {', '.join(BUILT)}"
        )
    return Checkpoint(ComparedPolicy(folder.resolve().name), folder, folder.resolve().name)
