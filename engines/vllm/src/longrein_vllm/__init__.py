"""vLLM's side of longrein: weights that a trainer on the same host left in shared memory.

vLLM calls `register` in each of its processes; `--weight-transfer-config '{"backend": "longrein-shm"}'` then takes `SharedMemoryEngine`.
"""

BACKEND = "longrein-shm"


def register() -> None:
    """Make the backend known to vLLM. Calling it again changes nothing."""
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, "longrein_vllm.engine", "SharedMemoryEngine")
