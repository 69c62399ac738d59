"""`longrein train --dry-run`: the examples are whole, and the plan has the figures."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
ON_GPUS = ("gpu1.toml", "gpu2_lora.toml", "gpu8.toml", "opencode_deepcoder_vllm.toml")
# The data set and vLLM's GPU build are not on a test machine; everything else of the config is checked as it stands.
ELSEWHERE = ("taskset.name=practice", "taskset.limit=4", f"policy.engine_python={sys.executable}")


def plan(config, *sets, environment=None):
    command = [sys.executable, "-m", "longrein", "train", str(config), "--dry-run", "--json"]
    return subprocess.run(
        [*command, *(part for item in sets for part in ("--set", item))], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize("name", ON_GPUS)
def test_the_examples_for_gpus_are_whole(name):
    done = plan(EXAMPLES / name, *ELSEWHERE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["parameters"] in (1_500_000_000, 4_000_000_000, 7_000_000_000), "the name tells the size: the model is not here"
    assert found["memory"]["policy server: weights"] == 2 * found["parameters"]
    shared = "shared memory" in found["ports"]["weights"]
    assert shared == (name in ("gpu1.toml", "gpu8.toml"))
    assert bool(found["memory"]["weights in transit (shared memory)"]) == shared


def test_the_plan_of_a_model_that_is_here(tmp_path, model):
    done = plan(EXAMPLES / "quickstart.toml", f"policy.model={model}", "train.lora.rank=2", f"run.out={tmp_path / 'run'}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    from safetensors.torch import load_file

    n = sum(tensor.numel() for tensor in load_file(Path(model) / "model.safetensors").values())
    assert found["parameters"] == n
    assert 0 < found["trained_parameters"] < n
    memory = found["memory"]
    assert memory["trainer: weights, gradients, Adam (each process)"] == 4 * n + 12 * found["trained_parameters"]
    assert memory["weights in transit (shared memory)"] == 3 * 4 * n
    assert memory["sessions, at most"] == 3 * 4096 << 20
    assert (found["sessions_at_once"], found["groups_ahead"], found["staleness"]) == (3, 15, 4)
    assert found["processes"]["trainer"] == "1 on CPU"
    assert not (tmp_path / "run").exists(), "nothing was started"


def test_what_training_would_refuse_is_refused_now():
    done = plan(EXAMPLES / "quickstart.toml", "train.sampling.top_p=0.9")
    assert (done.returncode, "top_p" in done.stderr) == (2, True)
