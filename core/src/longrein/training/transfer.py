"""Weights from the trainer to a policy server on this host: a file in shared memory, loaded while the server is paused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from longrein.config import Config
from longrein.errors import ServeError

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
    """TRL's WeightTransferProtocol, to one server or several of the same policy.

    A server that has died misses a version. It comes back with the newest file in its folder, or gets the next version; capture asks it
    only when it serves the live one.

    Args:
        servers: the control of each server, and the folder that it takes weights from.
        version: policy version before the first transfer; every transfer counts one up, as the trainer does.
        log: takes a line about a server that missed a version.
    """

    def __init__(self, servers: Sequence[tuple[Control, Path]], *, version: int, log: Callable[[str], None] = lambda line: None) -> None:
        self._servers, self.version, self._log = servers, version, log

    def init_weight_transfer(self) -> None:
        """Tell each server which folder is meant."""
        self._all(lambda control, folder: control.use(folder))

    def pause(self) -> None:
        """Let the replies under way end and hold back the others."""
        self._all(lambda control, _: control.pause(mode="wait"))

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Write the weights once and have them loaded everywhere as the next version."""
        from longrein.serve.weights import offer_weights, write_weights

        version = self.version + 1
        path = write_weights(iterator, self._servers[0][1], version)

        def load(control: Control, folder: Path) -> None:
            control.load(offer_weights(path, folder), version)

        for number, done in enumerate(self._all(load), 1):
            if not done:
                self._log(f"policy server {number} misses version {version}")
        self.version = version

    def resume(self) -> None:
        """Let the servers answer again."""
        self._all(lambda control, _: control.resume())

    def destroy(self) -> None:
        """Nothing is held: the folders go with the servers."""

    def _all(self, call: Callable[[Control, Path], None]) -> list[bool]:
        """Call every server at once; an error counts when all have one. Returns which did it."""
        with ThreadPoolExecutor(len(self._servers)) as pool:
            calls = [pool.submit(call, control, folder) for control, folder in self._servers]
        errors = [future.exception() for future in calls]
        for error in errors:
            if error is not None and (len(errors) == 1 or not isinstance(error, ServeError) or all(errors)):
                raise error
        return [error is None for error in errors]
