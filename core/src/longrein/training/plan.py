"""`longrein train --dry-run`: everything of a run but the weights and the sessions, and what it will take."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from longrein.config import Config
from longrein.plugins import PluginHost
from longrein.rollout.check import check_names
from longrein.rollout.policy import built_folder, need_extra
from longrein.sandbox import choose
from longrein.serve.generations import GENERATIONS
from longrein.training import settings
from longrein.training.child import agent_weights, training_tasks
from longrein.training.transfer import by_file

BYTES = {"float32": 4, "bfloat16": 2}
ADAM = 12
"""Bytes a trained parameter takes besides its own: gradient and two moments in float32."""


@frozen
class Plan:
    """What a run will do and need. Sizes are estimates in bytes, None where the model's size is not known here."""

    processes: Mapping[str, str]
    """Name to what it is."""
    ports: Mapping[str, str]
    memory: Mapping[str, int | None]
    sessions_at_once: int
    groups_ahead: int
    """Groups that may be under way at once."""
    staleness: int
    """Versions that a row may lag behind at the loss."""
    tasks: int
    eval_tasks: int
    steps: int
    rows_per_step: int
    rows_per_forward: int
    """Of each training process."""
    parameters: int | None
    trained_parameters: int | None


def make_plan(config: Config, host: PluginHost, *, processes: int) -> Plan:
    """Check a config as training does, and return what it will take.

    Args:
        config: the whole config.
        host: the loaded plugins.
        processes: training processes.

    Raises:
        ConfigError, PluginError, MissingError, SandboxError, TaskError: what `train` would refuse.
    """
    need_extra("train", "torch", "trl", "transformers")
    settings.check(config)
    check_names(config, host)
    sandbox = choose(config, host, training=True)
    tasks, eval_tasks = training_tasks(config, host)
    agents = agent_weights(config, [name for name in config.agents if host.agent_class(name).capabilities.calls_model])
    args = settings.make_args(config, run_folder=Path("run"), processes=processes)
    shape = _shape(config, host)
    parameters = shape.get("parameters") if shape else _named_size(config.policy.model)
    train, limits = config.train, config.limits
    rows_ahead = (train.max_staleness + 1) * train.rows_per_step
    return Plan(
        processes=_processes(config, sandbox.name, processes, sorted(agents)),
        ports=_ports(config),
        memory=_memory(config, processes, parameters, shape),
        sessions_at_once=limits.sessions,
        groups_ahead=math.ceil(rows_ahead / train.group_size),
        staleness=train.max_staleness,
        tasks=len(tasks),
        eval_tasks=len(eval_tasks),
        steps=train.max_steps,
        rows_per_step=train.rows_per_step,
        rows_per_forward=args.per_device_train_batch_size,
        parameters=parameters,
        trained_parameters=_trained(config, shape) if train.lora else parameters,
    )


def _processes(config: Config, sandbox: str, processes: int, agents: list[str]) -> dict[str, str]:
    policy = config.policy
    device = "GPU" if _on_gpu() else "CPU"
    server = f"{policy.url}, already running" if policy.url else f"{policy.engine}, started by the run, kept and stopped with it"
    return {
        "trainer": f"{processes} on {device}" + (" (accelerate launch)" if processes > 1 else ""),
        "engine": f"1, beside the first trainer: {', '.join(agents)} in {sandbox}",
        "policy server": server,
        "sessions": f"up to {config.limits.sessions}, each with the agent's own processes",
    }


def _ports(config: Config) -> dict[str, str]:
    weights = "shared memory" if by_file(config) else "the adapter's folder, by path" if config.train.lora else "a free TCP port for NCCL"
    own = "a unix socket in the run's private folder" if by_file(config) else "a free port of 127.0.0.1"
    return {"policy server": config.policy.url or own, "weights": weights}


def _memory(config: Config, processes: int, parameters: int | None, shape: Mapping[str, int] | None) -> dict[str, int | None]:
    train, trained = config.train, _trained(config, shape) if config.train.lora else parameters
    tokens = min(settings.FORWARD_TOKENS, (train.token_budget or config.policy.max_model_len or 8192) * train.rows_per_step // processes)
    optimizer = served = transit = None
    if parameters is not None:
        optimizer = parameters * 4 + (trained or 0) * ADAM
        served = parameters * BYTES[train.dtype]
        transit = (GENERATIONS + 1) * parameters * 4 if by_file(config) else 0
    return {
        "trainer: weights, gradients, Adam (each process)": optimizer,
        "trainer: activations (each process, checkpointed)": tokens * shape["hidden"] * (shape["layers"] + 40) * BYTES[train.dtype]
        if shape
        else None,
        "policy server: weights": served,
        "weights in transit (shared memory)": transit,
        "sessions, at most": config.limits.sessions * config.sandbox.limits.memory_mb << 20,
    }


def _shape(config: Config, host: PluginHost) -> Mapping[str, int] | None:
    """Return sizes of the model from its config, without its weights; None where that is not on this machine."""
    folder = _config_folder(config, host)
    if folder is None:
        return None
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    given = AutoConfig.from_pretrained(folder, local_files_only=True)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(given)
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not model.get_output_embeddings()]
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "hidden": given.hidden_size,
        "layers": given.num_hidden_layers,
        "adapter": sum(module.in_features + module.out_features for module in linear),
    }


def _config_folder(config: Config, host: PluginHost) -> Path | None:
    name = config.policy.model
    if built := built_folder(config, host):
        return built if (built / "config.json").is_file() else None
    if (Path(name) / "config.json").is_file():
        return Path(name)
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json")
    return Path(found).parent if isinstance(found, str) else None


def _named_size(model: str) -> int | None:
    """Return the parameters that a name such as Qwen2.5-Coder-7B-Instruct tells."""
    found = re.search(r"(\d+(?:\.\d+)?)([BM])\b", model, flags=re.IGNORECASE)
    return int(float(found[1]) * {"B": 1e9, "M": 1e6}[found[2].upper()]) if found else None


def _trained(config: Config, shape: Mapping[str, int] | None) -> int | None:
    lora = config.train.lora
    return lora.rank * shape["adapter"] if lora and shape and not lora.target_modules else None


def _on_gpu() -> bool:
    import torch

    return torch.cuda.is_available()
