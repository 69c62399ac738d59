"""Real AsyncGRPOTrainer steps on the CPU, against the real policy server; only the agents are fake (train_fake_child.py)."""

import json
import os
import sys
import textwrap
from pathlib import Path

import pytest

from longrein.config import from_mapping
from longrein.errors import ConfigError, RunStopped
from longrein.plugins import PluginHost
from longrein.training import train, worker

FAKE = str(Path(__file__).with_name("train_fake_child.py"))
PLUGIN = """
    import longrein
    from longrein.agent import AgentAdapter, LaunchPlan
    from longrein.model import PublicTask, Task, TaskRef
    from longrein.options import NoOptions
    from longrein.verifier import TaskSet
    from attrs import frozen

    class Tick(AgentAdapter):
        name = "tick"
        def launch(self, session):
            return LaunchPlan(["true"])

    class Tock(Tick):
        name = "tock"

    @frozen
    class Numbers:
        first: int = 0
        n: int = 3

    class NumberTasks(TaskSet):
        name = "numbers"
        Options = Numbers
        def tasks(self):
            for i in range(self.options.first, self.options.first + self.options.n):
                yield Task(f"n{i}", f"digest{i}", PublicTask(f"count to {i}"), TaskRef("numbers", f"n{i}"), "deepcoder")
        def hidden(self, task_id):
            return {}

    @longrein.hookimpl
    def longrein_agents():
        return [Tick, Tock]

    @longrein.hookimpl
    def longrein_tasksets():
        return [NumberTasks]
"""


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """A random Llama of a few thousand parameters with a byte tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

    folder = tmp_path_factory.mktemp("model")
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({c: i for i, c in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    fast.chat_template = (
        "{% for m in messages %}{{ m.role }}:{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"
    )
    fast.save_pretrained(folder)
    set_seed(0)
    LlamaForCausalLM(LlamaConfig(
        vocab_size=260, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=512, eos_token_id=fast.eos_token_id, pad_token_id=fast.pad_token_id, bos_token_id=None,
    )).save_pretrained(folder)
    return folder


@pytest.fixture
def trains(tmp_path, model, monkeypatch):
    """Return a function that trains with the fake engine and gives back the run folder."""
    (tmp_path / "numbers.py").write_text(textwrap.dedent(PLUGIN))
    host = PluginHost.load(["./numbers.py"], folder=tmp_path)
    monkeypatch.setattr(worker, "CHILD", (sys.executable, FAKE))

    def run(*sets, engine=None, resume=None, log=None):
        monkeypatch.setenv("LONGREIN_TEST_ENGINE", json.dumps(engine or {}))
        values = {
            "run": {"out": str(tmp_path / "run"), "seed": 1}, "plugins": {"use": ["./numbers.py"]}, "taskset": "numbers",
            "agents": {"tick": {}, "tock": {}}, "policy": {"model": str(model)}, "limits": {"sessions": 4},
            "train": {"max_steps": 3, "group_size": 4, "rollouts_per_step": 8, "learning_rate": 1e-2, "save_steps": 2},
        }
        return train(from_mapping(values, sets), host=host, resume=resume, log=log)

    return run


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_trains_and_the_canary_holds(trains):
    folder = trains(log=print)
    metrics = lines(folder, "metrics.jsonl")
    print(metrics[0])
    assert [m["step"] for m in metrics if "loss" in m] == [1, 2, 3]
