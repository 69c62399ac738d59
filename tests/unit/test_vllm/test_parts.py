"""The parts of the vLLM path that need no vLLM: fit of files, flags, environment, preflight. tests/vllm has the real server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.config import from_mapping
from longrein.errors import MissingError, ServeError
from longrein.plugins import PluginHost
from longrein.rollout.check import check_names
from longrein.serve.vllm.command import Adapters, VllmOptions, arguments, environment
from longrein.serve.vllm.preflight import check_vllm
from longrein.serve.vllm.toolchain import CPU, lend_plugin
from longrein_vllm import BACKEND
from longrein_vllm.fit import header, misfit

NAMES = st.dictionaries(st.text("abc.", min_size=1, max_size=8), st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=6)


@given(NAMES)
def test_a_file_fits_its_own_checkpoint_and_no_other(shapes: dict[str, tuple[int, ...]]) -> None:
    assert misfit(shapes, shapes, tied=False) is None
    name = min(shapes)
    fewer = {key: shape for key, shape in shapes.items() if key != name}
    assert (misfit(fewer, shapes, tied=False) or "").startswith(f"{name!r} is missing" if fewer else "it has no weights")
    if fewer:
        assert (misfit(shapes, fewer, tied=False) or "").startswith(f"unknown name {name!r}")
    assert "has shape" in (misfit({**shapes, name: (99,)}, shapes, tied=False) or "")


@pytest.mark.parametrize(("tied", "fits"), [(True, True), (False, False)])
def test_a_tied_head_may_be_in_one_of_the_two_only(tied: bool, fits: bool) -> None:
    body: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (4, 2)}
    whole = {**body, "lm_head.weight": (4, 2)}
    assert (misfit(body, whole, tied=tied) is None) == (misfit(whole, body, tied=tied) is None) == fits


def test_the_header_has_the_shapes_of_a_file(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"a": torch.zeros(2, 3), "b": torch.zeros(5, dtype=torch.bfloat16)}, tmp_path / "x.safetensors", metadata={"format": "pt"})
    assert header(tmp_path / "x.safetensors") == {"a": (2, 3), "b": (5,)}


def options(**values: Any) -> VllmOptions:
    given = {
        "python": Path("/venv/bin/python"),
        "model": Path("/models/m"),
        "name": "m",
        "cpu": True,
        "plugins": Path("/run/plugins"),
        "tmp": Path("/run/t"),
    }
    return VllmOptions(**{**given, **values})


def test_the_command_has_every_flag_that_capture_and_sync_need_and_the_users_own_last() -> None:
    given = arguments(options(socket=Path("/run/policy.sock"), max_model_len=2048, args=("--dtype", "bfloat16")))
    line = " ".join(given)
    for wanted in (
        "--return-tokens-as-token-ids",
        "--logprobs-mode processed_logprobs",
        "--generation-config vllm",
        "--enable-auto-tool-choice --tool-call-parser hermes",
        f'--weight-transfer-config {{"backend": "{BACKEND}"}}',
        "--max-model-len 2048",
        "--uds /run/policy.sock",
        "--kv-cache-memory-bytes",
    ):
        assert wanted in line
    assert given[-2:] == ["--dtype", "bfloat16"]
    assert "--enable-lora" not in line
    assert "--kv-cache-memory-bytes" not in arguments(options(cpu=False))


@pytest.mark.parametrize(("rank", "shown"), [(1, "1"), (4, "8"), (8, "8"), (33, "64")])
def test_adapters_get_the_next_rank_that_vllm_has_and_the_route_for_new_ones(rank: int, shown: str) -> None:
    given = options(adapters=Adapters(rank, 6, Path("/run/adapters")))
    assert " ".join(["--enable-lora", "--max-lora-rank", shown, "--max-loras", "6"]) in " ".join(arguments(given))
    assert environment(given)["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"


def test_vllm_sees_nothing_of_our_own_environment_but_the_plugin(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", "/ours")
    monkeypatch.setenv("VIRTUAL_ENV", "/ours")
    given = environment(options(plugins=lend_plugin(tmp_path / "plugins"), env=("CUDA_VISIBLE_DEVICES=1",)))
    assert "VIRTUAL_ENV" not in given
    assert given["TMPDIR"] == "/run/t"
    assert (given["VLLM_SERVER_DEV_MODE"], given["CUDA_VISIBLE_DEVICES"]) == ("1", "1")
    code = (
        "import importlib.metadata as m, sys; print([e.value for e in m.entry_points(group='vllm.general_plugins')]); import longrein_vllm"
    )
    bare = [sys._base_executable, "-S", "-c", code]  # type: ignore[attr-defined]
    done = subprocess.run(bare, env=dict(given), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['longrein_vllm:register']"


def test_a_config_that_needs_vllm_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LONGREIN_CACHE", str(tmp_path))
    config = from_mapping({"taskset": "practice", "agents": {"react": {}}, "policy": {"model": str(tmp_path), "engine": "vllm"}})
    with pytest.raises(MissingError, match=f"longrein agents install {CPU}"):
        check_names(config, PluginHost.load())


GOOD = {
    "model_config": {"dtype": "torch.bfloat16", "logprobs_mode": "processed_logprobs", "max_model_len": 4096},
    "weight_transfer_config": {"backend": BACKEND},
    "lora_config": {"max_lora_rank": 16, "max_loras": 6},
}
BAD = [
    ("--dtype bfloat16", {"model_config": {**GOOD["model_config"], "dtype": "torch.float32"}}),
    ("--logprobs-mode processed_logprobs", {"model_config": {**GOOD["model_config"], "logprobs_mode": "raw_logprobs"}}),
    ("--max-model-len 4096", {"model_config": {**GOOD["model_config"], "max_model_len": 2048}}),
    ("--weight-transfer-config", {"weight_transfer_config": None}),
    ("--weight-transfer-config", {"weight_transfer_config": {"backend": "nccl"}}),
    ("--enable-lora --max-lora-rank 16", {"lora_config": None}),
    ("--max-loras 6", {"lora_config": {"max_lora_rank": 16, "max_loras": 5}}),
]


def training(flag: str) -> Any:
    values: dict[str, Any] = {"dtype": "bfloat16", "token_budget": 4096, "max_staleness": 4}
    if "lora" in flag:
        values["lora"] = {"rank": 10}
    policy = {"url": "http://127.0.0.1:1/v1", "model": "m", "weight_transfer": "shared_memory"}
    return from_mapping({"taskset": "practice", "agents": {"react": {}}, "policy": policy, "train": values})


@pytest.mark.parametrize(("flag", "change"), BAD)
def test_a_running_server_that_lacks_something_is_refused_with_the_flag(flag: str, change: dict[str, Any]) -> None:
    check_vllm(GOOD, training(flag))
    with pytest.raises(ServeError, match=r"cannot be trained from") as refused:
        check_vllm({**GOOD, **change}, training(flag))
    assert flag in str(refused.value)
    assert str(refused.value).count("start it with") == (2 if change == {"lora_config": None} else 1)
