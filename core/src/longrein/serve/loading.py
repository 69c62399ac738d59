"""A model folder, loaded and checked for serving."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from longrein.errors import ServeError, nearest
from longrein.serve.template import ChatTemplate

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@frozen(eq=False)
class Policy:
    """A model ready to serve."""

    name: str
    """Name of the folder."""
    model: Any
    template: ChatTemplate
    eos_ids: Sequence[int]
    max_model_len: int
    n_bytes: int
    """Size of the weights."""


def load_policy(folder: Path, *, dtype: str, max_model_len: int | None, threads: int) -> Policy:
    """Load a model and its tokenizer from disk, onto CUDA when there is one.

    Raises:
        ServeError: the folder is no model, or one that this server cannot serve exactly.
    """
    if dtype not in DTYPES:
        raise ServeError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}{nearest(dtype, DTYPES)}")
    torch.set_num_threads(threads)
    disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype], attn_implementation="sdpa", local_files_only=True)
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise ServeError(f"cannot load a causal language model from {folder}: {error}") from error
    model = model.eval().requires_grad_(False).to("cuda" if torch.cuda.is_available() else "cpu")
    _check_attention(model.config)
    n_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    name = folder.resolve().name
    return Policy(name, model, ChatTemplate(tokenizer), _eos_ids(model, tokenizer), _length(model.config, max_model_len), n_bytes)


def _check_attention(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"]) - {"full_attention"}
    if kinds or (getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)):
        raise ServeError(
            f"{config.model_type} uses {', '.join(sorted(kinds)) or 'a sliding window'}; the embedded server only has"
            " full attention. Serve this model with vLLM and name its URL in [policy]"
        )


def _eos_ids(model: Any, tokenizer: Any) -> list[int]:
    stated = getattr(model.generation_config, "eos_token_id", None)
    ids = {*(stated if isinstance(stated, list) else [stated]), tokenizer.eos_token_id} - {None}
    if not ids:
        raise ServeError("neither generation_config.json nor the tokenizer names an end token (eos_token_id)")
    return sorted(ids)


def _length(config: Any, wanted: int | None) -> int:
    longest: int = getattr(config, "max_position_embeddings", None) or wanted or 0
    if not longest or (wanted is not None and not 1 <= wanted <= longest):
        raise ServeError(f"max_model_len {wanted} is not usable: the model takes 1 to {longest} tokens")
    return wanted or longest
