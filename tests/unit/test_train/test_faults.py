"""Every process of a training run is killed at some moment: nothing survives, every record can be read, and the run goes on."""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import tomli_w

from longrein.rollout.record import read_rollouts

PLUGIN = '''
import longrein
from longrein.agent import AgentAdapter, Capabilities, LaunchPlan
from longrein.model import PublicTask, Task, TaskRef, Verdict
from longrein.verifier import TaskSet, Verifier

CODE = """
import json, os, time, urllib.request
time.sleep(0.3)  # an agent that is gone at once is hard to kill
body = {"model": "m", "messages": [{"role": "user", "content": "go"}]}
head = {"Authorization": "Bearer " + os.environ["KEY"], "Content-Type": "application/json"}
reply = urllib.request.urlopen(urllib.request.Request(os.environ["URL"], json.dumps(body).encode(), head), timeout=120)
open("solution.py", "w").write(json.load(reply)["choices"][0]["message"]["content"])
"""

class Quick(AgentAdapter):
    name = "quick"
    capabilities = Capabilities(tools=False)
    def launch(self, session):
        env = {"URL": session.base_url + "/v1/chat/completions", "KEY": session.api_key}
        return LaunchPlan((str(session.python), "-I", "-c", CODE), env)

class Letters(TaskSet):
    name = "letters"
    def tasks(self):
        for i in range(50):
            yield Task(f"t{i}", f"digest{i}", PublicTask("write letters"), TaskRef("letters", f"t{i}"), "letters")
    def hidden(self, task_id):
        return {}

class Share(Verifier):
    name = "letters"
    def grade(self, hidden, workspace):
        text = (workspace / "solution.py").read_bytes() if (workspace / "solution.py").exists() else b""
        return Verdict("failed", sum(byte % 2 for byte in text) / (len(text) + 1))

@longrein.hookimpl
def longrein_agents():
    return [Quick]

@longrein.hookimpl
def longrein_tasksets():
    return [Letters]

@longrein.hookimpl
def longrein_verifiers():
    return [Share]
'''
KINDS = {
    "engine": lambda argv: "longrein.training.child" in argv,
    "policy server": lambda argv: "longrein.serve" in argv,
    "janitor": lambda argv: "longrein-janitor" in argv,
    "bubblewrap": lambda argv: argv[0].endswith("bwrap"),
    "first process": lambda argv: "/opt/longrein/init.py" in argv and not argv[0].endswith("bwrap"),
    "agent": lambda argv: argv[0].startswith("/opt/longrein/bin/"),
}
"""Each kind of process beside the trainer, and how its command line is known."""
STEPS = 3


class Training:
    """One run of `longrein train` in a temporary folder of its own."""

    def __init__(self, folder, model):
        self.folder, self.out = folder, folder / "run"
        (folder / "plugin.py").write_text(PLUGIN)
        config = {
            "run": {"out": str(self.out)},
            "plugins": {"use": ["./plugin.py"]},
            "taskset": "letters",
            "agents": {"quick": {}},
            "policy": {"model": str(model)},
            "reward": {"name": "fraction"},
            "limits": {"sessions": 2, "max_reply_tokens": 12, "unscorable_share": 1.0},
            "train": {"max_steps": STEPS, "group_size": 4, "rows_per_step": 4, "save_steps": 1},
        }
        (folder / "config.toml").write_text(tomli_w.dumps(config))
        self.short = Path(tempfile.mkdtemp(prefix="lrf", dir="/tmp"))
        self.weights = set()

    def start(self, *arguments):
        """Start the trainer with its own temporary folder."""
        with (self.folder / "stderr").open("ab") as stderr:
            return psutil.Popen(
                [sys.executable, "-m", "longrein", "train", *arguments],
                env={**os.environ, "TMPDIR": str(self.short)},
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    def tree(self, trainer):
        """Return kind to the processes of it that run now."""
        found = {"trainer": [trainer]}
        for process in trainer.children(recursive=True):
            try:
                argv = process.cmdline()
            except psutil.Error:
                continue
            for kind in (kind for kind, known in KINDS.items() if argv and known(argv)):
                found.setdefault(kind, []).append(process)
        return found

    def rollouts(self):
        """Return the number of whole lines."""
        path = self.out / "rollouts.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def kill(self, kind, moment, delay_s):
        """Train, and kill one process of a kind some time after so many rollouts; return exit code, all processes, and whether it was."""
        seen, kill_at, killed = set(), None, False
        with self.start(str(self.folder / "config.toml")) as trainer:
            while trainer.poll() is None:
                tree = self.tree(trainer)
                seen |= {process for processes in tree.values() for process in processes}
                self.weights |= {link.readlink() for link in self.short.glob("lr-*/weights")}
                if kill_at is None and self.rollouts() >= moment:
                    kill_at = time.monotonic() + delay_s
                if not killed and kill_at is not None and time.monotonic() >= kill_at and kind in tree:
                    tree[kind][0].kill()
                    killed = True
                time.sleep(0.03)
            code = trainer.wait()
        return code, seen, killed

    def check(self, seen):
        """Nothing of the run is alive or lies about, and what it recorded is whole."""
        alive = psutil.wait_procs(seen, timeout=30)[1]
        assert not alive, alive
        deadline = time.monotonic() + 30
        while (left := [*self.short.glob("lr-*"), *filter(Path.exists, self.weights)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left
        ids = [rollout.id for rollout in read_rollouts(self.out)]
        assert len(set(ids)) == len(ids)
        for name in ("groups.jsonl", "metrics.jsonl"):
            lines = (self.out / name).read_bytes().split(b"\n") if (self.out / name).exists() else [b""]
            assert all(json.loads(line) for line in lines[:-1])

    def close(self):
        """Remove the temporary folder."""
        shutil.rmtree(self.short)


def try_kill(folder, model, kind, draw):
    """Kill one process at a random moment and see what becomes of the run."""
    folder.mkdir()
    training = Training(folder, model)
    try:
        code, seen, killed = training.kill(kind, moment=draw.randrange(1, 9), delay_s=draw.random())
        said = (folder / "stderr").read_text()
        assert killed, f"the run ended before there was a {kind} to kill: {said}"
        training.check(seen)
        if kind == "engine":
            assert (code, "the engine process was killed by SIGKILL" in said) == (1, True), said
        elif kind == "policy server":  # in the middle of a weight sync it cannot go on, and says so
            assert "the policy server was killed by SIGKILL; starting it again" in said
            assert code == 0 or "the policy server" in said.splitlines()[-1], said
        elif kind != "trainer":
            assert code == 0, said
        if code:
            with training.start("--resume", str(training.out)) as resumed:
                assert resumed.wait() == 0, (folder / "stderr").read_text()
            training.check(set())
        summary = json.loads((training.out / "summary.json").read_text())
        assert summary["agents"]["quick"]["outcomes"]["completed"] >= STEPS
    finally:
        training.close()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["trainer", "policy server", "bubblewrap"])
def test_a_killed_process(kind, model, tmp_path):
    try_kill(tmp_path / "run", model, kind, random.Random(kind))


@pytest.mark.more
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(50))
def test_fifty_killed_processes(number, model, tmp_path):
    kinds = ("trainer", *KINDS)
    try_kill(tmp_path / "run", model, kinds[number % len(kinds)], random.Random(number))
