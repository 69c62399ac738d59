"""Weights from the trainer to a policy server on this host: a file in shared memory, loaded while the server is paused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from longrein.config import Config

if TYPE_CHECKING:
    import torch

    from longrein.serve.process import Control


def by_file(config: Config) -> bool:
    """True when weights go to the policy server as files in shared memory, False when TRL sends them (NCCL, or LoRA adapters by path)."""
    policy = config.policy
    if policy.url is not None:
        return policy.weight_transfer == "shared_memory"
    return policy.engine == "embedded" or config.train.lora is None


class Elsewhere:
    """Stands for the transfer in the training processes that send nothing: TRL only asks whether there is one."""


class FileTransfer:
    """TRL's WeightTransferProtocol.

    Args:
        control: the server's control.
        folder: where the server takes weights from.
        version: policy version before the first transfer; every transfer counts one up, as the trainer does.
    """

    def __init__(self, control: Control, folder: Path, *, version: int) -> None:
        self._control, self._folder, self.version = control, folder, version

    def init_weight_transfer(self) -> None:
        """Tell the server which folder is meant."""
        self._control.use(self._folder)

    def pause(self) -> None:
        """Let the replies under way end and hold back the others."""
        self._control.pause(mode="wait")

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Write the weights and have them loaded as the next version."""
        from longrein.serve.weights import write_weights

        path = write_weights(iterator, self._folder, self.version + 1)
        self._control.load(path, self.version + 1)
        self.version += 1

    def resume(self) -> None:
        """Let the server answer again."""
        self._control.resume()

    def destroy(self) -> None:
        """Nothing is held: the folder goes with the server."""
