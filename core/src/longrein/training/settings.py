"""AsyncGRPOConfig from our config: `[train.trl]` is passed through by name, what longrein owns is refused there."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from longrein.config import Config, SamplingConfig
from longrein.errors import ConfigError, UnknownNameError
from longrein.training.transfer import by_file

if TYPE_CHECKING:
    from trl.experimental.async_grpo import AsyncGRPOConfig

GENERATES = "the agents generate, through longrein's capture"
OWNED: Mapping[str, str] = {
    "output_dir": "checkpoints go into the run folder; set [run] out",
    "run_name": "set [run] name",
    "seed": "set [run] seed",
    "max_steps": "set [train] max_steps",
    "num_train_epochs": "the length of a run is [train] max_steps; passes over the tasks are counted by the engine process",
    "num_generations": "set [train] group_size",
    "gradient_accumulation_steps": "it follows from [train] rows_per_step and per_device_train_batch_size",
    "learning_rate": "set [train] learning_rate",
    "max_staleness": "set [train] max_staleness",
    "token_budget": "set [train] token_budget",
    "save_steps": "set [train] save_steps",
    "save_strategy": "set [train] save_steps",
    "bf16": "set [train] dtype",
    "fp16": "set [train] dtype",
    "report_to": "set [train] report_to",
    "weight_sync_timeout": "set [train] sync_timeout_s",
    "weight_sync_steps": "longrein syncs and checks the weights after every step",
    "vllm_server_base_url": "set [policy] url",
    "temperature": "set [train.sampling] temperature",
    "top_p": "set [train.sampling] top_p",
    "top_k": "set [train.sampling] top_k",
    "min_p": "set [train.sampling] min_p",
    "repetition_penalty": "set [train.sampling] repetition_penalty",
    "max_completion_length": "set [limits] max_reply_tokens",
    "max_inflight_tasks": "set [limits] sessions",
    "queue_maxsize": "the look-ahead is bounded by [train] max_staleness",
    "max_tool_calling_iterations": "set [limits] max_calls",
    "chat_template_kwargs": GENERATES,
    "fork_threshold_tokens": GENERATES,
    "request_timeout": GENERATES,
    "log_completions": "rollouts.jsonl has every completion",
    "num_completions_to_print": "rollouts.jsonl has every completion",
    "eval_strategy": "set [eval] every",
    "eval_steps": "set [eval] every",
    "do_eval": "set [eval]",
    "ignore_data_skip": "TRL fixes it",
    "accelerator_config": "TRL fixes it",
    "resume_from_checkpoint": "use --resume RUN",
    "hub_token": "a config is written into the run folder; set HF_TOKEN in the environment",
}
NO_OP: Mapping[str, tuple[Any, ...]] = {"top_p": (1.0,), "top_k": (-1, 0), "min_p": (0.0,), "repetition_penalty": (1.0,)}
RANK_WAIT_S = 7 * 24 * 3600
"""How long training processes wait for each other: longer than any evaluation; what hangs is the watchdog's to name."""
FORWARD_TOKENS = 65_536
"""Rows of one forward pass are chosen so that they stay within this many tokens when every row is as long as allowed."""


def check(config: Config) -> None:
    """Refuse what cannot be trained with, before anything is started.

    Raises:
        ConfigError: sampling that the importance ratio cannot account for, or a [train.trl] field that longrein owns.
        UnknownNameError: a [train.trl] field that AsyncGRPOConfig does not have, or a weight for something that the config lacks.
    """
    _check_sampling(config.train.sampling)
    if config.train.max_staleness < 1:
        raise ConfigError(
            f"[train] max_staleness {config.train.max_staleness} must be at least 1: the next step's batch is fetched "
            "before this step is made"
        )
    check_mixture(config)
    _check_servers(config)
    for name in config.train.trl:
        if name in OWNED:
            raise ConfigError(f"[train.trl] {name} is longrein's: {OWNED[name]}")
    known = trl_fields()
    for name, value in config.train.trl.items():
        if name not in known:  # the nearest may be an owned one: giving that says where it is set
            raise UnknownNameError("AsyncGRPOConfig field in [train.trl]", name, known)
        if type(known[name]) in (int, float) and type(value) not in (int, float):
            raise ConfigError(f"[train.trl] {name} must be a number, got {value!r}")


def _check_servers(config: Config) -> None:
    """Refuse several policy servers where weights reach only one."""
    policy = config.policy
    if (policy.more_urls and not by_file(config)) or (policy.servers > 1 and policy.url is None and not by_file(config)):
        raise ConfigError(
            "several policy servers get their weights through shared memory only: leave out [train.lora] with vLLM, or set [policy] "
            'weight_transfer = "shared_memory"'
        )
    if policy.servers > 1 and policy.url is not None:
        raise ConfigError("[policy] servers counts what longrein starts; beside `url` name the others in `more_urls`")


def check_mixture(config: Config) -> None:
    """Refuse weights for agents and task sets that the config lacks, and weights that leave no task set."""
    mixture = config.train.mixture
    for name in mixture.agents:
        if name not in config.agents:
            raise UnknownNameError("agent in [train.mixture] agents", name, config.agents)
    for name in mixture.tasksets:
        if name not in config.tasksets:
            raise UnknownNameError(
                "task set in [train.mixture] tasksets", name, config.tasksets, hint="Names are those of [tasksets.NAME]."
            )
    if config.tasksets and not any(mixture.tasksets.get(name, 1.0) for name in config.tasksets):
        raise ConfigError(f"[train.mixture] tasksets gives {', '.join(config.tasksets)} the weight 0, so nothing is left to train on")


def trl_fields() -> dict[str, Any]:
    """Return all fields of AsyncGRPOConfig with their defaults."""
    with quiet():
        from trl.experimental.async_grpo import AsyncGRPOConfig
    return {field.name: field.default for field in dataclasses.fields(AsyncGRPOConfig)}


def make_args(config: Config, *, run_folder: Path, processes: int, server: str | None = None) -> AsyncGRPOConfig:
    """Return TRL's arguments for a config.

    An optimizer step takes `rows_per_step` rows: that many samples are counted out (TRL's own token_budget is 0), so the
    step at which a row is trained, and with it its staleness at the loss, is known when it is handed over.

    Args:
        config: the whole config, checked.
        run_folder: checkpoints go below it.
        processes: number of training processes.
        server: the policy server's URL, where TRL itself talks to it; default [policy] url.
    """
    import torch

    train, on_gpu = config.train, torch.cuda.is_available()
    passed = dict(train.trl)
    per_device = passed.pop("per_device_train_batch_size", None)
    per_device = per_device or _rows_per_forward(train.rows_per_step, processes, train.token_budget)
    if train.rows_per_step % (per_device * processes):
        raise ConfigError(
            f"[train] rows_per_step {train.rows_per_step} must be a multiple of per_device_train_batch_size x processes "
            f"({per_device} x {processes})"
        )
    values: dict[str, Any] = {
        "output_dir": str(run_folder / "checkpoints"),
        "run_name": config.run.name,
        "seed": config.run.seed,
        "max_steps": train.max_steps,
        "num_generations": train.group_size,
        "per_device_train_batch_size": per_device,
        "gradient_accumulation_steps": train.rows_per_step // (per_device * processes),
        "learning_rate": train.learning_rate,
        "max_staleness": train.max_staleness,
        "token_budget": 0,
        "save_strategy": "steps",
        "save_steps": train.save_steps,
        # Weights stay in float32 unless [train.trl] dtype says otherwise: bfloat16 would round small updates away.
        "dtype": "float32",
        "bf16": train.dtype == "bfloat16",
        "report_to": list(train.report_to) or "none",
        "weight_sync_timeout": int(train.sync_timeout_s),
        "temperature": train.sampling.temperature,
        "use_cpu": not on_gpu,
        "gradient_checkpointing": on_gpu,
        "disable_tqdm": True,
        "logging_steps": 1,
        "dataloader_pin_memory": on_gpu,
        "project": "longrein",
        "ddp_timeout": RANK_WAIT_S,
    }
    if url := server or config.policy.url:
        values["vllm_server_base_url"] = url.rstrip("/").removesuffix("/v1")
    with quiet():
        from trl.experimental.async_grpo import AsyncGRPOConfig

        try:
            return AsyncGRPOConfig(**{**values, **passed})
        except (TypeError, ValueError) as error:
            raise ConfigError(f"[train.trl]: {error}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Drop the warnings that TRL's trainer gives about itself, whatever the config says."""
    from transformers.utils import logging

    level = logging.get_verbosity()
    logging.set_verbosity_error()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="You are importing from 'trl.experimental'")
        warnings.filterwarnings("ignore", message="`gradient_checkpointing` is deprecated", category=FutureWarning)
        try:
            yield
        finally:
            logging.set_verbosity(level)


@contextmanager
def no_bars() -> Iterator[None]:
    """Show no progress bars for the reading and writing of models: they are many and small here."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _check_sampling(sampling: SamplingConfig) -> None:
    for name, allowed in NO_OP.items():
        value = getattr(sampling, name)
        if value not in allowed:
            raise ConfigError(
                f"[train.sampling] {name} = {value!r} cannot be trained with: the trainer's log-probabilities are those of the plain "
                f"softmax at `temperature`, so the importance ratio would be wrong; leave it at {allowed[0]!r}"
            )


def _rows_per_forward(rows_per_step: int, processes: int, token_budget: int | None) -> int:
    most = max(1, rows_per_step // processes)
    fitting = max(1, FORWARD_TOKENS // (token_budget or FORWARD_TOKENS))
    return max((n for n in range(1, most + 1) if most % n == 0 and n <= fitting), default=1)
