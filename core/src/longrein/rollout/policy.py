"""From a config's policy section to an endpoint that answers: a running one is checked, else the embedded server starts."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve

from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import Config
from longrein.errors import ConfigError, MissingError, RunStopped
from longrein.sandbox import runtime_folder

if TYPE_CHECKING:
    from longrein.plugins import PluginHost
    from longrein.serve.group import ServerGroup
    from longrein.serve.process import ServerProcess

Log = Callable[[str], None]
BUILT = ("practice", "smollm2-135m")
"""Policies that longrein makes and keeps in its cache."""


def policy_agents(config: Config, host: PluginHost) -> dict[str, dict[str, object]]:
    """Return the agents of a config that call the model, with their options."""
    return {n: dict(o) for n, o in config.agents.items() if host.agent_class(n).capabilities.calls_model}


def resolve_model(config: Config, host: PluginHost, *, log: Log) -> Path:
    """Return the model folder of the policy; builds the practice policy when it is not cached.

    Raises:
        ConfigError: the folder does not hold a transformers model.
        MissingError: the extra with torch and transformers is not installed.
    """
    if config.policy.engine == "embedded" or config.policy.model in BUILT:
        need_extra("train", "torch", "transformers")
    if config.policy.model == "practice":
        from longrein.practice import build_policy

        return build_policy(policy_agents(config, host), log=log, host=host)
    if config.policy.model == "smollm2-135m":
        from longrein.smollm2 import build_smollm2

        return build_smollm2(log=log)
    return _folder(config.policy.model, log)


def built_folder(config: Config, host: PluginHost) -> Path | None:
    """Return where a policy of `BUILT` is or would be; None for any other."""
    if config.policy.model == "practice":
        from longrein.practice.policy import policy_folder

        return policy_folder(policy_agents(config, host), host)
    if config.policy.model == "smollm2-135m":
        from longrein.smollm2 import folder

        return folder()
    return None


def _folder(model: str, log: Log) -> Path:
    folder = Path(model)
    if (folder / "config.json").is_file():
        return folder
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", model) or folder.exists():
        raise ConfigError(
            f"[policy] model {model!r} is neither one of {', '.join(BUILT)} nor a folder with a transformers model (config.json) "
            "nor the name of one on the hub"
        )
    need_extra("train", "huggingface_hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, local_files_only=True))
    except LocalEntryNotFoundError:
        log(f"downloading {model} from the hub")
    try:
        return Path(snapshot_download(model))
    except (HfHubHTTPError, OSError) as error:
        raise MissingError(f"[policy] model {model!r} is not in the hub's cache and cannot be downloaded: {error}") from error


def endpoint_of(config: Config) -> PolicyEndpoint:
    """Return the endpoint that `policy.url` names, unchecked."""
    policy = config.policy
    if policy.url is None:
        raise ConfigError("[policy] url is not set")
    key = None
    if policy.api_key_env is not None:
        key = os.environ.get(policy.api_key_env)
        if not key:
            raise ConfigError(f"[policy] api_key_env names {policy.api_key_env!r}, which is not set in the environment")
    first, *others = [
        PolicyEndpoint(url=url, model=policy.model, api_key=key, max_model_len=policy.max_model_len)
        for url in (policy.url, *policy.more_urls)
    ]
    return evolve(first, others=tuple(others))


@asynccontextmanager
async def open_policy(
    config: Config, host: PluginHost, *, folder: Path, name: str | None = None, log: Log
) -> AsyncIterator[PolicyEndpoint | None]:
    """Yield the endpoint for evaluation; None when no agent of the config calls a model.

    Args:
        config: the whole config.
        host: the loaded plugins.
        folder: run folder; the embedded server's log goes there.
        name: served name of the embedded server's model, which agents see; default its folder's.
        log: takes progress lines.
    """
    from longrein.capture.preflight import check_endpoint

    if not policy_agents(config, host):
        yield None
    elif config.policy.url is not None:
        endpoint = await check_endpoint(endpoint_of(config), training=False)
        if endpoint.level != "tokens":
            log(f"{endpoint.url} returns no token ids that could be trained: this is for evaluation only")
        yield endpoint
    else:
        model = await asyncio.to_thread(resolve_model, config, host, log=log)
        log(f"starting the policy server for {model.name}")
        folder.mkdir(parents=True, exist_ok=True)
        with runtime_folder() as runtime:
            async with _kept(partial(start_servers, config, model, runtime, folder, name, log=log)) as endpoint:
                yield endpoint


def start_servers(
    config: Config,
    model: Path,
    runtime: Path,
    folder: Path,
    name: str | None = None,
    *,
    training: bool = False,
    log: Log,
    over: Callable[[str], None],
) -> ServerGroup:
    """Start the policy servers that a config wants, with their logs in the run folder.

    In training they have room for the adapters of [train.lora]. `over` is called when none is left.
    """
    from longrein.serve.group import ServerGroup

    def start(place: Path, number: int) -> ServerProcess:
        return start_server(config, model, place, folder, name, training=training, number=number)

    return ServerGroup(start, config.policy.servers, runtime, log=log, over=over)


def start_server(
    config: Config, model: Path, runtime: Path, folder: Path, name: str | None, *, training: bool, number: int
) -> ServerProcess:
    """Start one of the policy servers; its log is server.log, server-2.log and so on."""
    from longrein.serve.process import ServerProcess
    from longrein.serve.vllm.command import Adapters
    from longrein.serve.vllm.start import start_vllm

    policy, dtype = config.policy, config.train.dtype
    log = folder / (f"server-{number + 1}.log" if number else "server.log")
    host = _address_for_nodes(config)
    if policy.engine == "embedded":
        return ServerProcess.start(model, runtime=runtime, log=log, name=name, dtype=dtype, max_model_len=policy.max_model_len, host=host)
    lora = config.train.lora if training else None
    return start_vllm(
        model,
        runtime=runtime,
        log=log,
        name=name,
        dtype=dtype,
        max_model_len=policy.max_model_len,
        python=policy.engine_python,
        adapters=Adapters(lora.rank, config.train.max_staleness + 2, (folder / "checkpoints" / ".vllm_lora").absolute()) if lora else None,
        args=policy.engine_args,
        env=_share_of_devices(policy.engine_env, number, policy.servers),
        host=host,
    )


def _share_of_devices(env: Mapping[str, str], number: int, n_servers: int) -> Mapping[str, str]:
    """Return a server's environment: of the GPUs named there, each server gets as many, in order.

    Raises:
        ConfigError: they cannot be shared out evenly.
    """
    name = "CUDA_VISIBLE_DEVICES"
    if n_servers == 1 or name not in env:
        return env
    devices = env[name].split(",")
    each, rest = divmod(len(devices), n_servers)
    if rest or not each:
        raise ConfigError(f"[policy] engine_env has {len(devices)} {name} for {n_servers} servers; give each as many")
    return {**env, name: ",".join(devices[number * each : (number + 1) * each])}


def _address_for_nodes(config: Config) -> str | None:
    """Return this machine's address where sessions run on other nodes too; None where a unix socket does."""
    if config.executor.name != "ray" or config.executor.address is None:
        return None
    need_extra("ray", "ray")
    import ray.util

    address: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return address


@asynccontextmanager
async def _kept(start: Callable[..., ServerGroup]) -> AsyncIterator[PolicyEndpoint]:
    """Keep the servers running while the block runs; end the block with the reason when none is left."""
    loop, block, reasons = asyncio.get_running_loop(), asyncio.current_task(), list[str]()
    assert block is not None

    def over(reason: str) -> None:
        reasons.append(reason)
        loop.call_soon_threadsafe(block.cancel)

    group = await asyncio.to_thread(start, over=over)
    try:
        yield group.endpoint
    except asyncio.CancelledError:
        if reasons:
            raise RunStopped(reasons[0]) from None
        raise
    finally:
        await asyncio.to_thread(group.stop)


def need_extra(extra: str, *modules: str) -> None:
    """Check that the modules of an extra can be found.

    Raises:
        MissingError: one cannot; the message has the pip command.
    """
    import importlib.util

    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingError(f"{', '.join(missing)} not installed; run: pip install 'longrein[{extra}]'")
