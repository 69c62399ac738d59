"""Tree attention with SDPA gives what a plain forward pass of each row gives."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies

from longrein.training import attention
from longrein.training.settings import quiet

with quiet():
    from trl.experimental.async_grpo.packing import TREE_ATTENTION, TreeRow, register_tree_attention

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
}


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM, LlamaConfig(**SIZES)


def sliding():
    from transformers import MistralConfig, MistralForCausalLM

    return MistralForCausalLM, MistralConfig(**SIZES, sliding_window=6, head_dim=8)


def softcap():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    return Gemma2ForCausalLM, Gemma2Config(**SIZES, head_dim=8, attn_logit_softcapping=0.5, sliding_window=6, query_pre_attn_scalar=16)


@pytest.fixture(scope="module", params=[llama, sliding, softcap])
def pair(request):
    """The same weights behind plain attention and behind tree attention."""
    cls, config = request.param()
    torch.manual_seed(0)
    config._attn_implementation = "eager"
    plain = cls(config).eval()
    register_tree_attention()
    attention.use_sdpa()
    tree = cls(cls.config_class(**{**config.to_dict(), "attn_implementation": TREE_ATTENTION})).eval()
    tree.load_state_dict(plain.state_dict())
    with torch.no_grad():
        for model in (plain, tree):
            for parameter in model.parameters():
                parameter.mul_(4.0)  # attention of a fresh model is nearly flat: differences would not show
    assert tree.config._attn_implementation == TREE_ATTENTION
    return plain, tree


def packed_logits(model, rows):
    row = TreeRow()
    for ids in rows:
        row.add(
            {
                "input_ids": np.array(ids),
                "completion_mask": np.ones(len(ids), int),
                "old_log_probs": np.zeros(len(ids)),
                "advantage": 0.0,
                "group_id": 0,
            }
        )
    packed = row.pack()
    longest_q, longest_k = packed["tree_max_seqlens"].tolist()
    logits = model(
        input_ids=packed["input_ids"][None],
        position_ids=packed["position_ids"][None],
        tree_max_seqlen_q=longest_q,
        tree_max_seqlen_k=longest_k,
        **{key: packed[key] for key in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")},
    ).logits[0]
    split = packed["segment_id"]
    return [logits[packed["token_index"][split == i]] for i in range(len(rows))], len(packed["input_ids"])


shared = strategies.lists(strategies.integers(1, 49), min_size=1, max_size=14)


@settings(max_examples=8)
@given(prefix=shared, middles=strategies.lists(shared, min_size=1, max_size=2), tails=strategies.lists(shared, min_size=1, max_size=3))
def test_packed_rows_equal_plain_ones(pair, prefix, middles, tails):
    plain, tree = pair
    rows = [[*prefix, *middle, *tail] for middle in middles for tail in tails] + [[7, 8, 9, 10]]
    packed, _ = packed_logits(tree, rows)
    for ids, logits in zip(rows, packed, strict=True):
        expected = plain(input_ids=torch.tensor([ids])).logits[0, :-1]
        assert torch.allclose(logits, expected, atol=1e-4, rtol=1e-4), (logits - expected).abs().max()


def test_shared_tokens_are_forwarded_once_and_gradients_agree():
    torch.manual_seed(1)
    cls, config = llama()
    plain = cls(config)
    register_tree_attention()
    attention.use_sdpa()
    tree = cls(cls.config_class(**{**config.to_dict(), "attn_implementation": TREE_ATTENTION}))
    tree.load_state_dict(plain.state_dict())
    rows = [[3, 1, 4, 1, 5, 9], [3, 1, 4, 1, 5, 8], [3, 1, 4, 2, 6]]
    logits, n_tokens = packed_logits(tree, rows)
    assert n_tokens < sum(map(len, rows))
    sum(part.square().sum() for part in logits).backward()
    for ids in rows:
        plain(input_ids=torch.tensor([ids])).logits[0, :-1].square().sum().backward()
    for (name, one), (_, other) in zip(tree.named_parameters(), plain.named_parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-4, rtol=1e-3), name
