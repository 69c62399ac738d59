"""`train`: one policy, several agents, TRL's AsyncGRPOTrainer."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from longrein.capture.endpoint import PolicyEndpoint, answers
from longrein.config import Config, PluginsConfig
from longrein.errors import ConfigError, MissingError
from longrein.plugins import PluginHost
from longrein.rollout.check import check_names
from longrein.rollout.policy import BUILT, endpoint_of, resolve_model, start_servers
from longrein.rollout.record import RunRecorder, new_run_folder, read_lines
from longrein.rollout.summary import Cell, summarize
from longrein.sandbox import choose, runtime_folder
from longrein.serve.generations import WEIGHTS_LINK
from longrein.training import settings
from longrein.training.buffer import RowBuffer
from longrein.training.canary import Canary
from longrein.training.state import TrainState, last_checkpoint, next_block, read
from longrein.training.transfer import Elsewhere, FileTransfer, by_file
from longrein.training.watchdog import Watchdog
from longrein.training.worker import Launch, RolloutWorker

Log = Callable[[str], None]
ADAPTER = "trl-policy"
"""How TRL names the adapters that it sends: this, "-v" and the version."""


@frozen
class _Parts:
    """What only the main process has; None on the other ranks."""

    recorder: RunRecorder | None = None
    worker: RolloutWorker | None = None
    transfer: FileTransfer | Elsewhere | None = None
    """None where TRL's own transfer does it: NCCL to a server that is already running, or LoRA adapters."""
    watchdog: Watchdog | None = None


def train(config: Config, *, host: PluginHost | None = None, resume: Path | None = None, log: Log | None = None) -> Path:
    """Train the policy of a config through its agents.

    Args:
        config: the whole config.
        host: loaded plugins; default those that the config names.
        resume: a run folder to go on in, from its last whole checkpoint.
        log: takes progress lines.

    Returns:
        The run folder: model/ loads in transformers, summary.json has the figures before and after.

    Raises:
        ConfigError, PluginError, MissingError: something that the config asks for cannot be had.
        RunStopped: nothing to train on, too much unscorable, or the engine process or the policy server died; with the reason.
        SandboxError: the sandbox that the config asks for does not work here, or is not enough for training.
        ServeError: the policy server failed, or does not serve the trainer's weights (canary).
    """
    log = log or (lambda line: None)
    settings.check(config)
    host = host or PluginHost.load(config.plugins.use)
    config = evolve(config, plugins=PluginsConfig(host.use))  # files by their whole path, for the child and for --resume
    check_names(config, host)
    choose(config, host, training=True)
    rank, processes = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    folder, checkpoint = _folder(config, resume)
    settings.make_args(config, run_folder=folder, processes=processes)  # what TRL refuses is told before anything is started
    state = read(checkpoint) if checkpoint else TrainState()
    if state.step >= config.train.max_steps and (folder / "summary.json").exists():
        raise ConfigError(f"{folder} has made its {state.step} steps already; set a larger [train] max_steps to go on")
    # Trackers greet on standard output, which is for results.
    with _terminate_interrupts(), settings.no_bars(), redirect_stdout(sys.stderr), ExitStack() as stack:
        config, model, endpoint, parts = _prepare(config, host, folder, state, stack, main=rank == 0, resumed=resume is not None, log=log)
        start = str(model if config.train.lora else checkpoint or model)  # a checkpoint of LoRA has the adapter only
        trainer = _make_trainer(config, start, endpoint, folder, parts, processes)
        trainer.model_version = state.version
        canary = Canary(endpoint, dtype=config.train.dtype, temperature=config.train.sampling.temperature)
        evals = _run(config, trainer, parts, canary, state, checkpoint, log)
        _save(trainer, folder / "model")
        if parts.recorder:
            parts.recorder.summary(_summary(folder, evals))
            log(f"model written to {folder / 'model'}")
        trainer.accelerator.wait_for_everyone()  # the other ranks' callers find the summary too
    return folder


def _folder(config: Config, resume: Path | None) -> tuple[Path, Path | None]:
    if resume is not None:
        return resume, last_checkpoint(resume)
    if config.run.out is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("[run] out must be set when several processes train, so that all of them mean the same folder")
    return new_run_folder(config), None


def _prepare(
    config: Config, host: PluginHost, folder: Path, state: TrainState, stack: ExitStack, *, main: bool, resumed: bool, log: Log
) -> tuple[Config, str, PolicyEndpoint, _Parts]:
    """Start the engine process and the policy server; everything started ends with `stack`."""
    if not main:
        model, length = _model(config, host, log)
        config = evolve(config, train=evolve(config.train, token_budget=config.train.token_budget or length))
        # Only the main process asks the server and sends weights.
        return config, model, PolicyEndpoint(url="", model=model), _Parts(transfer=Elsewhere() if by_file(config) else None)
    runtime = stack.enter_context(runtime_folder())
    recorder = RunRecorder(folder, exist_ok=resumed)
    wants = config.train
    buffer = RowBuffer(state, rows_per_step=wants.rows_per_step, max_staleness=wants.max_staleness, max_steps=wants.max_steps)
    worker = RolloutWorker(Launch(config, host.folder, folder, next_block(folder)), state, buffer, log=log)
    stack.callback(worker.stop)
    ready = worker.wait_ready()
    recorder.start(config, tasks=ready.n_tasks, eval_tasks=ready.n_eval_tasks, resumed_at=state.step or None)
    log(f"training {', '.join(ready.agents)} on {ready.n_tasks} tasks" + (f", evaluating on {ready.n_eval_tasks}" if config.eval else ""))
    model, _ = _model(config, host, log)
    if config.serves_policy:
        endpoint, transfer = _serve(config, Path(model), runtime, folder, state, stack, worker, log)
    else:
        endpoint, transfer = _running_endpoint(config, Path(model), runtime, state, stack, log)
    token_budget = config.train.token_budget or endpoint.max_model_len
    if token_budget is None:
        raise ConfigError("the policy server does not say its max_model_len; set [policy] max_model_len or [train] token_budget")
    worker.connect(endpoint if config.serves_policy else None, token_budget=token_budget, adapter=endpoint.adapter)
    watchdog = Watchdog(healthy=lambda: answers(endpoint), rows=buffer, log=log, over=worker.fail)
    stack.callback(watchdog.stop)
    config = evolve(config, train=evolve(config.train, token_budget=token_budget))
    return config, model, endpoint, _Parts(recorder, worker, transfer, watchdog)


def _model(config: Config, host: PluginHost, log: Log) -> tuple[str, int | None]:
    """Return what the trainer loads, and its length where that is known without a server."""
    if not config.serves_policy:
        if config.policy.model in BUILT:
            raise ConfigError("[policy] url is set, so [policy] model must name the model that is served there (a hub id or a folder)")
        return config.policy.model, config.policy.max_model_len
    folder = resolve_model(config, host, log=log)
    length = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("max_position_embeddings")
    return str(folder), config.policy.max_model_len or length


def _serve(
    config: Config, model: Path, runtime: Path, folder: Path, state: TrainState, stack: ExitStack, worker: RolloutWorker, log: Log
) -> tuple[PolicyEndpoint, FileTransfer | None]:
    log("starting the policy server")
    group = start_servers(config, model, runtime, folder, training=True, log=log, over=worker.fail)
    stack.callback(group.stop)
    takers = [(server.control, server.weights) for server in group.servers if server.weights is not None]
    if not takers:  # they take adapters
        return evolve(group.endpoint, adapter=ADAPTER), None
    for control, _ in takers:
        control.timeout_s = config.train.sync_timeout_s
    return group.endpoint, FileTransfer(takers, version=state.version, log=log)


def _running_endpoint(
    config: Config, model: Path, runtime: Path, state: TrainState, stack: ExitStack, log: Log
) -> tuple[PolicyEndpoint, FileTransfer | None]:
    from importlib.util import find_spec

    from longrein.capture.preflight import check_endpoint

    endpoint = asyncio.run(check_endpoint(endpoint_of(config), training=True))
    if not by_file(config) and config.train.lora is None:
        if find_spec("vllm") is None:
            raise MissingError(
                "training against a running vLLM server sends weights with vLLM's own code; run: pip install vllm. Where the server is "
                'on this host, [policy] weight_transfer = "shared_memory" needs none'
            )
        return endpoint, None
    from longrein.serve.generations import new_folder, stored_bytes
    from longrein.serve.vllm.control import VllmControl
    from longrein.serve.vllm.preflight import check_vllm

    controls = [VllmControl(one, timeout_s=config.train.sync_timeout_s) for one in (endpoint, *endpoint.others)]
    for control in controls:
        check_vllm(control.info(), config)
    if not by_file(config):
        return evolve(endpoint, adapter=ADAPTER), None
    weights = new_folder(stored_bytes(model), fallback=runtime)
    (runtime / WEIGHTS_LINK).symlink_to(weights)
    stack.callback(shutil.rmtree, weights, ignore_errors=True)
    return endpoint, FileTransfer([(control, weights) for control in controls], version=state.version, log=log)


def _make_trainer(config: Config, model: str, endpoint: PolicyEndpoint, folder: Path, parts: _Parts, processes: int) -> Any:
    args = settings.make_args(config, run_folder=folder, processes=processes, server=None if by_file(config) else endpoint.url)
    with settings.quiet():
        from datasets import Dataset
        from transformers import PrinterCallback, ProgressCallback
        from trl.experimental.async_grpo import AsyncGRPOTrainer

        from longrein.training import attention

        # TRL wants a data set; tasks are the engine process's.
        placeholder = Dataset.from_dict({"prompt": [[{"role": "user", "content": ""}]]})
        with attention.no_cuda_name():
            trainer = AsyncGRPOTrainer(
                model=model,
                args=args,
                train_dataset=placeholder,
                rollout_worker=parts.worker,
                weight_transfer=parts.transfer,
                peft_config=_adapter(config),
            )
    if not attention.has_kernel():
        attention.use_sdpa()
    for callback in (PrinterCallback, ProgressCallback):  # `log` tells the progress
        trainer.remove_callback(callback)
    return trainer


def _adapter(config: Config) -> Any:
    """Return peft's config for [train.lora], None without it."""
    if (wants := config.train.lora) is None:
        return None
    from peft import LoraConfig

    targets = list(wants.target_modules) or "all-linear"
    return LoraConfig(r=wants.rank, lora_alpha=wants.alpha, target_modules=targets, task_type="CAUSAL_LM")


def _run(
    config: Config, trainer: Any, parts: _Parts, canary: Canary, state: TrainState, checkpoint: Path | None, log: Log
) -> Mapping[str, tuple[Cell, ...]]:
    from longrein.training.callbacks import LongreinCallback

    callback = LongreinCallback(
        config,
        trainer,
        worker=parts.worker,
        canary=canary,
        recorder=parts.recorder,
        watchdog=parts.watchdog,
        state=state,
        log=log,
    )
    trainer.add_callback(callback)
    if parts.watchdog:
        parts.watchdog.sync_since = time.monotonic()  # training begins with a sync
        parts.watchdog.start()
    if state.step < config.train.max_steps:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    else:  # it was broken off in its last evaluation: sync, start and evaluate, without a step
        trainer.state.global_step = state.step
        trainer.callback_handler.on_train_begin(trainer.args, trainer.state, trainer.control)
        trainer.callback_handler.on_train_end(trainer.args, trainer.state, trainer.control)
    return callback.evals


def _save(trainer: Any, folder: Path) -> None:
    """Write the trained model, whole: an adapter is merged into it."""
    from accelerate.utils import is_peft_model

    model = trainer.accelerator.unwrap_model(trainer.model)
    if not is_peft_model(model):
        trainer.save_model(str(folder))
    elif trainer.accelerator.is_main_process:
        model.merge_and_unload().save_pretrained(folder)
        trainer.processing_class.save_pretrained(folder)


def _summary(folder: Path, evals: Mapping[str, tuple[Cell, ...]]) -> dict[str, Any]:
    """Return summary.json of a run: first evaluation as before, last as after, training rollouts of all its starts."""
    steps = sorted(evals, key=lambda phase: int(phase.rpartition(":")[2]))
    sides = {}
    if steps and steps[0] == "eval:0":
        sides["before"] = evals[steps[0]]
    if len(steps) > 1:
        sides["after"] = evals[steps[-1]]
    return summarize(sides, trained=list(_trained(folder)))


def _trained(folder: Path) -> Iterator[Cell]:
    """Yield the training rollouts of a run from its groups."""
    for group in read_lines(folder / "groups.jsonl"):
        for rollout, status in group["statuses"].items():
            passed = None if status == "unscorable" else status == "passed"
            agent = group["agents"][rollout] if "agents" in group else group["agent"]
            outcome, reward = group["outcomes"][rollout], group["rewards"][rollout]
            yield Cell(agent, group["task_id"], "train", passed, outcome, reward, group["taskset"])


@contextmanager
def _terminate_interrupts() -> Iterator[None]:
    """Let SIGTERM end the run as Ctrl-C does, so that nothing is left running."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
