"""The canary against a real server, the weight transfer, and TRL's loss under both weightings."""

import queue
import tempfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from attrs import evolve

from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import from_mapping
from longrein.errors import ServeError
from longrein.serve.process import ServerProcess
from longrein.training import advantages, attention
from longrein.training import settings as trl_settings
from longrein.training.canary import Canary, score
from longrein.training.transfer import FileTransfer


@pytest.fixture(scope="module")
def trainer(model, tmp_path_factory):
    """A real AsyncGRPOTrainer whose worker and transfer are not used."""
    from datasets import Dataset

    config = from_mapping({"taskset": "practice", "agents": {"a": {}}, "train": {"token_budget": 512}})
    args = trl_settings.make_args(config, run_folder=tmp_path_factory.mktemp("run"), processes=1)
    with trl_settings.quiet(), attention.no_cuda_name():
        from trl.experimental.async_grpo import AsyncGRPOTrainer

        trainer = AsyncGRPOTrainer(
            model=str(model),
            args=args,
            train_dataset=Dataset.from_dict({"prompt": ["", ""]}),
            weight_transfer=SimpleNamespace(),
            rollout_worker=SimpleNamespace(rollout_buffer=queue.Queue(), metrics_queue=queue.Queue()),
        )
    attention.use_sdpa()
    return trainer


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    with tempfile.TemporaryDirectory(prefix="lrt", dir="/tmp") as runtime:
        server = ServerProcess.start(model, runtime=Path(runtime), log=tmp_path_factory.mktemp("log") / "server.log")
        yield server
        server.stop()


def sync(transfer, model):
    transfer.init_weight_transfer()
    transfer.pause()
    transfer.send_weights((name, parameter.detach()) for name, parameter in model.named_parameters())
    transfer.resume()
    transfer.destroy()


def shift(model, by):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(by * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))


def test_canary_holds_after_a_sync_and_not_without(trainer, server):
    transfer = FileTransfer([(server.control, server.weights)], version=4)
    canary = Canary(server.endpoint, dtype="float32", temperature=1.0)
    sync(transfer, trainer.model)
    first = canary.compare(canary.sample(5), 5, trainer.model)
    assert first["canary/difference_mean"] < 1e-5

    shift(trainer.model, 0.05)
    with pytest.raises(ServeError, match="canary failed: the server answers with version 5 after version 6 was synced"):
        canary.compare(canary.sample(6), 6, trainer.model)
    with pytest.raises(ServeError, match=r"canary failed after the sync of version 6: .*\(bounds 0.001 and 0.01\)"):
        canary.compare({0: evolve(canary.sample(6)[0], version=None)}, 6, trainer.model)
    sync(transfer, trainer.model)
    second = canary.compare(canary.sample(6), 6, trainer.model)
    assert second["canary/difference_max"] < 1e-4
    assert second["canary/moved_max"] > 1e-3


def test_canary_sees_a_small_step_that_was_not_served(trainer, server):
    """Within the bounds of equal weights, and yet the server did not follow."""
    transfer = FileTransfer([(server.control, server.weights)], version=10)
    canary = Canary(server.endpoint, dtype="float32", temperature=1.0)
    sync(transfer, trainer.model)
    canary.compare(canary.sample(11), 11, trainer.model)
    shift(trainer.model, 1e-4)
    with pytest.raises(ServeError, match=r"trainer's log-probabilities moved by .*: the server still serves the weights before"):
        canary.compare({0: evolve(canary.sample(12)[0], version=12)}, 12, trainer.model)


def test_canary_names_a_server_that_does_not_answer():
    canary = Canary(PolicyEndpoint("http://127.0.0.1:9/v1", "m"), dtype="float32", temperature=1.0)
    with pytest.raises(ServeError, match="the canary could not ask the policy server: ConnectError"):
        canary.sample(1)


def loss(trainer, rows):
    """TRL's own loss over rows given as (prompt, sampled ids, advantage), on-policy."""
    from trl.experimental.async_grpo.async_grpo_trainer import DataCollatorForRollout
    from trl.experimental.async_grpo.packing import TreeRow

    packed = TreeRow()
    for prompt, sampled, advantage in rows:
        reply = SimpleNamespace(prompt_ids=prompt, ids=sampled)
        packed.add(
            {
                "input_ids": np.array([*prompt, *sampled]),
                "completion_mask": np.array([0] * len(prompt) + [1] * len(sampled)),
                "old_log_probs": np.array([0.0] * len(prompt) + score(trainer.model, reply)),
                "advantage": advantage,
                "group_id": 0,
                "metrics": {},
            }
        )
    inputs = DataCollatorForRollout(pad_token_id=0).torch_call([[packed]])
    trainer.current_gradient_accumulation_steps = 1
    return trainer.compute_loss(trainer.model, inputs).item()


def test_trls_loss_is_a_token_mean_and_weighting_evens_rollouts_out(trainer):
    """On-policy every ratio is 1, so the loss is -sum(A_r T_r) / sum(T_r); T_mean / T_r as a factor makes it -mean(A_r)."""
    prompt, lengths, values = [5, 6, 7], [2, 6, 4], [1.0, -0.5, -0.2]
    sampled = [list(range(20 + 10 * i, 20 + 10 * i + n)) for i, n in enumerate(lengths)]
    token_mean = -sum(a * n for a, n in zip(values, lengths, strict=True)) / sum(lengths)
    assert loss(trainer, list(zip([prompt] * 3, sampled, values, strict=True))) == pytest.approx(token_mean, abs=1e-5)

    weights = advantages.rollout_weights({str(i): n for i, n in enumerate(lengths)})
    weighted = [a * weights[str(i)] for i, a in enumerate(values)]
    assert loss(trainer, list(zip([prompt] * 3, sampled, weighted, strict=True))) == pytest.approx(-sum(values) / 3, abs=1e-5)
    # A rollout that forked counts its tokens over all rows: the same loss in two rows as in one.
    forked = [(prompt, sampled[1][:2], weighted[1]), ([*prompt, 9], sampled[1][2:], weighted[1])]
    rest = [(prompt, sampled[i], weighted[i]) for i in (0, 2)]
    assert loss(trainer, [*rest, *forked]) == pytest.approx(-sum(values) / 3, abs=1e-5)
