"""Whether a vLLM that is already running was started with what training needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from longrein.config import Config
from longrein.errors import ServeError
from longrein.serve.vllm.command import BACKEND, room_for


def check_vllm(info: Mapping[str, Any], config: Config) -> None:
    """Compare a server's resolved config with a training config.

    Args:
        info: `vllm_config` of its /server_info.
        config: the whole config.

    Raises:
        ServeError: something differs; the message names each flag to start vLLM with.
    """
    if problems := list(_problems(info, config)):
        raise ServeError(f"the vLLM at {config.policy.url} cannot be trained from: {'; '.join(problems)}")


def _problems(info: Mapping[str, Any], config: Config) -> Iterator[str]:
    model, train = info["model_config"], config.train
    served = str(model["dtype"]).removeprefix("torch.")
    if served != train.dtype:
        yield f"it serves in {served} and [train] dtype is {train.dtype}: start it with --dtype {train.dtype}"
    if model.get("logprobs_mode") != "processed_logprobs":
        yield f"its log-probabilities are {model.get('logprobs_mode')}: start it with --logprobs-mode processed_logprobs"
    if (wanted := train.token_budget or config.policy.max_model_len) and model["max_model_len"] < wanted:
        yield f"it takes {model['max_model_len']} tokens and the config asks for {wanted}: start it with --max-model-len {wanted}"
    if config.policy.weight_transfer == "shared_memory" and not train.lora:
        backend = (info.get("weight_transfer_config") or {}).get("backend")
        if backend != BACKEND:
            yield f'its weight transfer is {backend}: start it with --weight-transfer-config \'{{"backend": "{BACKEND}"}}\''
    if train.lora:
        lora = info.get("lora_config") or {}
        if lora.get("max_lora_rank", 0) < train.lora.rank:
            yield f"its LoRA rank is {lora.get('max_lora_rank')}: start it with --enable-lora --max-lora-rank {room_for(train.lora.rank)}"
        if lora.get("max_loras", 0) < train.max_staleness + 2:
            yield f"it holds {lora.get('max_loras')} adapters: start it with --max-loras {train.max_staleness + 2}"
