"""The flags that capture and weight sync need of vLLM's server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

BACKEND = "longrein-shm"
"""longrein-vllm's weight transfer, by its name in vLLM."""
CPU_KV_CACHE = 2 << 30
"""Bytes of the KV cache on CPUs, where vLLM would else reserve nearly all memory; [policy] engine_args can name another size."""
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM has buffers for."""


@frozen
class Adapters:
    """LoRA adapters that a server makes room for."""

    rank: int
    count: int
    """Versions at once: max_staleness + 2."""
    folder: Path
    """Where the trainer writes them; a server that is started again offers them again."""


@frozen
class VllmOptions:
    """One vLLM server."""

    python: Path
    """The interpreter of the venv that vLLM is installed in."""
    model: Path
    name: str
    """Served name."""
    cpu: bool
    plugins: Path
    """What vLLM has on its PYTHONPATH: longrein-vllm."""
    tmp: Path
    """Its temporary folder, removed by whoever starts it: vLLM leaves its sockets behind when it is killed."""
    socket: Path | None = None
    """A unix socket to listen on; host and port are used without it."""
    host: str = "127.0.0.1"
    port: int = 8000
    dtype: str = "float32"
    max_model_len: int | None = None
    tool_call_parser: str = "hermes"
    adapters: Adapters | None = None
    args: Sequence[str] = ()
    """Further flags; they come last, so they win."""
    env: Sequence[str] = ()
    """Further variables, each NAME=VALUE."""


def arguments(options: VllmOptions) -> list[str]:
    """Return the command line of vLLM's server (its `vllm` script lacks metadata in the CPU build, so the module is run)."""
    listen = ["--uds", str(options.socket)] if options.socket else ["--host", options.host, "--port", str(options.port)]
    return [
        *(str(options.python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(options.model)),
        *("--served-model-name", options.name, *listen, "--dtype", options.dtype),
        *(("--max-model-len", str(options.max_model_len)) if options.max_model_len else ()),
        # Ids and log-probabilities of the distribution that was sampled from, with no sampling of the model's own.
        *("--return-tokens-as-token-ids", "--logprobs-mode", "processed_logprobs", "--generation-config", "vllm"),
        *("--enable-auto-tool-choice", "--tool-call-parser", options.tool_call_parser),
        *("--weight-transfer-config", json.dumps({"backend": BACKEND})),
        *(("--kv-cache-memory-bytes", str(CPU_KV_CACHE)) if options.cpu else ()),
        *(_lora(options.adapters) if options.adapters else ()),
        *("--disable-uvicorn-access-log",),
        *options.args,
    ]


def environment(options: VllmOptions) -> Mapping[str, str]:
    """Return the environment: the routes for pauses and weights are vLLM's development mode; nothing is asked of a hub."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    own = {"VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    own |= {"PYTHONPATH": str(options.plugins), "TMPDIR": str(options.tmp)}
    given = dict(item.split("=", 1) for item in options.env)
    return {**kept, **own, **({"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"} if options.adapters else {}), **given}


def room_for(rank: int) -> int:
    """Return the smallest rank that vLLM has buffers for and that holds an adapter of `rank`; the largest where none does."""
    return next((room for room in LORA_RANKS if room >= rank), LORA_RANKS[-1])


def _lora(adapters: Adapters) -> Sequence[str]:
    return ("--enable-lora", "--max-lora-rank", str(room_for(adapters.rank)), "--max-loras", str(adapters.count))
