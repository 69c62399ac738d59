"""What we rely on in packages whose interfaces still move. A new release that breaks us fails here, by name."""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import version

import pytest

# TRL says with every first import that this part of it may change; that is what these tests are for.
pytestmark = pytest.mark.filterwarnings("ignore:You are importing from 'trl.experimental'")
PINNED = {"trl": "1.16.0", "openenv": "0.10.0", "transformers": "5.24.0"}
CAPTURE = "openenv.core.harness.capture"
ASYNC_GRPO = "trl.experimental.async_grpo"
CALLED = [
    (f"{CAPTURE}.server", "create_app", {"model", "max_output_tokens"}),
    (f"{CAPTURE}.server", "UpstreamPool", {"default_client", "default_level"}),
    (f"{CAPTURE}.upstream", "InferenceClient.completion", {"request"}),
    (f"{CAPTURE}.upstream", "prepare_request", {"request"}),
    (f"{CAPTURE}.upstream", "normalize_response", {"response"}),
    (f"{CAPTURE}.upstream", "auth_headers", {"api_key"}),
    ("openenv.core.generic_client", "GenericEnvClient._send", {"message"}),
    ("openenv.core.generic_client", "GenericEnvClient._receive", set()),
    ("openenv.core.generic_client", "GenericEnvClient._ensure_connected", set()),
    ("transformers.utils", "get_json_schema", {"func"}),
    ("uvicorn.server", "ServerState", set()),
    ("uvicorn.protocols.http.auto", "AutoHTTPProtocol", {"config", "server_state", "app_state"}),
    (ASYNC_GRPO, "AsyncGRPOTrainer", {"model", "args", "train_dataset", "rollout_worker", "weight_transfer"}),
    (f"{ASYNC_GRPO}.async_grpo_trainer", "get_peak_flops_per_device", set()),
    (f"{ASYNC_GRPO}.packing", "TreeRow.add", {"sample"}),
]
IMPLEMENTED = [
    ("RolloutWorkerProtocol", "longrein.training.worker", "RolloutWorker"),
    ("WeightTransferProtocol", "longrein.training.transfer", "FileTransfer"),
]


@pytest.mark.parametrize(("package", "expected"), PINNED.items())
def test_the_installed_version_is_the_one_we_were_written_for(package: str, expected: str) -> None:
    assert version(package) == expected


@pytest.mark.parametrize(("module", "name", "parameters"), CALLED, ids=[name for _, name, _ in CALLED])
def test_what_we_call_takes_what_we_give(module: str, name: str, parameters: set[str]) -> None:
    target = importlib.import_module(module)
    for part in name.split("."):
        target = getattr(target, part)
    assert parameters <= set(inspect.signature(target).parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize(("protocol", "module", "name"), IMPLEMENTED)
def test_we_have_every_method_that_trl_calls(protocol: str, module: str, name: str) -> None:
    theirs = getattr(importlib.import_module(f"{ASYNC_GRPO}.async_grpo_trainer"), protocol)
    ours = getattr(importlib.import_module(module), name)
    for method, function in inspect.getmembers(theirs, inspect.isfunction):
        if not method.startswith("_"):
            assert list(inspect.signature(getattr(ours, method)).parameters) == list(inspect.signature(function).parameters), method


def test_a_rollout_sample_has_the_fields_that_we_fill() -> None:
    module = importlib.import_module(f"{ASYNC_GRPO}.async_rollout_worker")
    filled = {"prompt", "completion", "input_ids", "completion_mask", "old_log_probs", "advantage", "model_version", "group_id", "metrics"}
    assert filled <= set(inspect.signature(module.RolloutSample).parameters)


def test_the_tree_attention_has_its_name() -> None:
    assert importlib.import_module(f"{ASYNC_GRPO}.packing").TREE_ATTENTION == "tree_fa3"
