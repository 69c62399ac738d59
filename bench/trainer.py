"""What does sharing a prompt bring on a CPU? Tree attention by SDPA against padded batches; prints whether the bound holds.

    python bench/trainer.py [--run RUN] [--layers 12] [--rounds 9]

Forward and backward over the rows of a recorded group whose rollouts share a long prompt: once packed into one prefix tree as TRL
does, with our SDPA attention, once as a padded batch of the same rows with plain SDPA. Losses must agree to 1e-4. The packing ratio is
tokens forwarded padded / packed; the bound is 0.7 of it as speed-up. Without --run, eight real Aider sessions of one task are recorded
first (SmolLM2-135M on vLLM's CPU build). The model is the first layers of SmolLM2 (all 30 take ten minutes). Rounds are interleaved;
figures are medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from longrein import api
from longrein.config import from_mapping
from longrein.model import Row
from longrein.rollout.record import read_rollouts
from longrein.smollm2 import build_smollm2
from longrein.training import attention, settings
from longrein.turns import build_rows

BOUND, SAME = 0.7, 1e-4


def record(folder: Path) -> Path:
    """Record eight sessions of one task."""
    config = from_mapping(
        {
            "taskset": {"name": "practice", "limit": 1},
            "agents": {"aider": {"auto_test": False}},
            "policy": {"model": "smollm2-135m", "engine": "vllm", "max_model_len": 6144, "engine_args": ["--enforce-eager"]},
            "limits": {"sessions": 8, "max_calls": 4, "max_reply_tokens": 256},
            "run": {"out": str(folder)},
        }
    )
    api.run(config, samples=8, log=print)
    return folder


def recorded_rows(run: Path) -> list[Row]:
    """Return the rows of the group with most rollouts."""
    rollouts = list(read_rollouts(run))
    largest = Counter(rollout.group_id for rollout in rollouts).most_common(1)[0][0]
    members = [rollout for rollout in rollouts if rollout.group_id == largest]
    return [row for r in members for row in build_rows(r.trajectory, rollout_id=r.id, agent=r.agent, token_budget=None).rows]


def load(folder: Path, layers: int, kind: str) -> Any:
    """Return the first layers of a model behind one kind of attention."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=kind)
    model.model.layers = model.model.layers[:layers]
    return model.train()


def loss_of(model: Any, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean negative log-probability of the trained tokens (nats)."""
    return torch.nn.functional.cross_entropy(model.lm_head(hidden), targets)


def main() -> int:
    """Measure and print; the exit status says whether all holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        rows = recorded_rows(options.run or record(Path(place, "run")))
    folder = build_smollm2(log=print)
    with settings.quiet():
        from trl.experimental.async_grpo.packing import TREE_ATTENTION, TreeRow, register_tree_attention

    import numpy as np

    register_tree_attention()
    attention.use_sdpa()
    tree = TreeRow()
    for row in rows:
        ids, mask = np.asarray(row.input_ids), np.asarray(row.mask)
        tree.add({"input_ids": ids, "completion_mask": mask, "old_log_probs": np.zeros(len(ids)), "advantage": 1.0, "group_id": 0})
    packed = tree.pack()
    longest = max(len(row.input_ids) for row in rows)
    ids = torch.tensor([[*row.input_ids, *[0] * (longest - len(row.input_ids))] for row in rows])
    attended = torch.tensor([[1] * len(row.input_ids) + [0] * (longest - len(row.input_ids)) for row in rows])
    places = [(i, p) for i, row in enumerate(rows) for p, trained in enumerate(row.mask) if trained]
    targets = torch.tensor([rows[i].input_ids[p] for i, p in places])
    batch, before = torch.tensor([i for i, _ in places]), torch.tensor([p - 1 for _, p in places])
    packed_model, padded_model = load(folder, options.layers, TREE_ATTENTION), load(folder, options.layers, "sdpa")

    def by_tree() -> float:
        longest_q, longest_k = packed["tree_max_seqlens"].tolist()
        hidden = packed_model.model(
            input_ids=packed["input_ids"][None],
            position_ids=packed["position_ids"][None],
            tree_max_seqlen_q=longest_q,
            tree_max_seqlen_k=longest_k,
            **{key: packed[key] for key in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")},
        ).last_hidden_state[0, packed["token_index"]]
        loss = loss_of(packed_model, hidden, targets)
        loss.backward()
        return loss.item()

    def by_padding() -> float:
        hidden = padded_model.model(input_ids=ids, attention_mask=attended).last_hidden_state[batch, before]
        loss = loss_of(padded_model, hidden, targets)
        loss.backward()
        return loss.item()

    seconds: dict[Callable[[], float], list[float]] = {by_tree: [], by_padding: []}
    losses: dict[Callable[[], float], float] = {}
    for number in range(options.rounds + 1):
        for work in (by_tree, by_padding) if number % 2 else (by_padding, by_tree):
            for model in (packed_model, padded_model):
                model.zero_grad()
            began = time.perf_counter()
            losses[work] = work()
            if number:  # the first warms up
                seconds[work].append(time.perf_counter() - began)
    packed_s, padded_s = (statistics.median(seconds[work]) for work in (by_tree, by_padding))
    ratio, speed = ids.numel() / len(packed["input_ids"]), padded_s / packed_s
    apart = abs(losses[by_tree] - losses[by_padding])
    shortest, n_packed, n_padded = min(len(row.input_ids) for row in rows), len(packed["input_ids"]), ids.numel()
    holds = speed >= BOUND * ratio and apart < SAME
    print(f"{len(rows)} rows of {shortest} to {longest} tokens, {len(places)} of them trained; {options.layers} layers")
    print(f"packed: {n_packed} tokens in {packed_s:.2f} s; padded: {n_padded} in {padded_s:.2f} s; losses differ by {apart:.1e}")
    print(f"{speed:.2f} times as fast where the packing ratio is {ratio:.2f}: {speed / ratio:.2f} of it (bound {BOUND:g})")
    print("holds" if holds else "DOES NOT HOLD")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
