"""Sessions and grading on Ray's own multi-node test cluster: same results as here, and what a lost worker, node or head costs."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from attrs import evolve
from tests.e2e.conftest import TOY, toy_host  # noqa: F401 (a fixture)
from tests.unit.test_train.conftest import model  # noqa: F401 (a fixture)

from longrein import api
from longrein.config import Config, from_mapping
from longrein.errors import RunStopped
from longrein.model import Rollout
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.record import read_lines, read_rollouts
from longrein.rollout.spec import RolloutSpec
from longrein.rollout.tasks import load_tasks
from longrein.testing.scripted import Reply, ScriptedServer

pytestmark = [pytest.mark.timeout(240), pytest.mark.filterwarnings("default")]  # Ray warns of its own accord
PLUGIN = Path(__file__).with_name("plugin.py")
SOLVES = "open('solution.py','w').write(ask('go')); ask('again')"
WAITS = "ask('go')\nwhile 1:\n    try: ask('wait'); break\n    except urllib.error.HTTPError: time.sleep(0.1)"
PROGRAM = "print(2 * int(input()))\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Three nodes on this machine; the head's runs no sessions."""
    ray = pytest.importorskip("ray", reason="longrein[ray] is not installed: pip install 'longrein[ray]'")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    for _ in range(2):
        made.add_node(num_cpus=2, resources={"sandbox": 4})
    made.wait_for_nodes()
    yield made
    ray.shutdown()
    made.shutdown()


def config(cluster: Any, url: str, code: str, tmp_path: Path, *sets: str, executor: str = "ray") -> Config:
    """Return a config of the `program` agent on the cluster."""
    values = {
        "taskset": "doubling",
        "agents": {"program": {"code": code}},
        "plugins": {"use": [str(TOY)]},
        "run": {"out": str(tmp_path / executor)},
        "policy": {"url": url, "model": "scripted"},
        "limits": {"sessions": 4},
        "executor": {"name": executor, "address": cluster.address, "workers": 2, "session_cpus": 0.5, "labels": {"sandbox": 1}},
    }
    return from_mapping(values, sets)


def content(rollout: Rollout) -> Any:
    """Return all of a rollout that may not depend on where and when it ran."""
    session = rollout.session
    calls = [
        (c.call.id, c.call.sampled_ids, c.call.logprobs, c.label, c.call.version_first, c.call.version_last) for c in rollout.trajectory
    ]
    return (
        (rollout.id, rollout.seed, rollout.verdict, rollout.reward, rollout.actions, session.outcome, calls),
        (dict(session.workspace), session.stdout, session.exit_code, session.sandbox["start_state"]),
    )


def test_a_run_on_three_nodes_gives_the_same_rollouts_as_here(cluster: Any, tmp_path: Path, toy_host: PluginHost) -> None:  # noqa: F811
    made: dict[str, list[Any]] = {}
    with ScriptedServer(lambda request: Reply(PROGRAM if request["messages"][-1]["content"] == "go" else "fine")) as server:
        for executor in ("local", "ray"):
            wanted = config(cluster, server.endpoint.url, SOLVES, tmp_path, executor=executor)
            result = api.run(wanted, samples=6, host=toy_host)
            made[executor] = sorted(map(content, result.rollouts), key=repr)
    assert made["local"] == made["ray"]
    assert len(made["ray"]) == 12
    assert all(first[2].status == "passed" for first, _ in made["ray"])
    assert sorted(rollout.id for rollout in read_rollouts(tmp_path / "ray")) == sorted(first[0] for first, _ in made["ray"])


def test_a_cluster_of_its_own_is_gone_with_the_run(tmp_path: Path, toy_host: PluginHost) -> None:  # noqa: F811
    before, others = set(Path("/tmp").glob("lr-*")), set(psutil.Process().children(recursive=True))
    values = {"taskset": "doubling", "agents": {"nop": {}}, "plugins": {"use": [str(TOY)]}, "run": {"out": str(tmp_path / "own")}}
    wanted = from_mapping({**values, "executor": {"name": "ray", "workers": 2, "session_cpus": 0.1, "grader_cpus": 0.1}})
    assert len(api.run(wanted, host=toy_host).rollouts) == 2
    _, left = psutil.wait_procs([p for p in psutil.Process().children(recursive=True) if p not in others], timeout=30)
    assert not left
    assert not [folder for folder in set(Path("/tmp").glob("lr-*")) - before if (folder / "session_latest").exists()]


def processes(name: str) -> list[psutil.Process]:
    """Return the processes of Ray actors of a class, the oldest first."""
    found = [p for p in psutil.process_iter(["cmdline", "create_time"]) if any(f"ray::{name}" in part for part in p.info["cmdline"] or ())]
    return sorted(found, key=lambda process: float(process.info["create_time"]))


async def waiting(server: ScriptedServer, n_sessions: int) -> None:
    """Wait until so many sessions ask whether they may go on."""
    async with asyncio.timeout(100):
        while sum(request["messages"][-1]["content"] == "go" for request in server.requests) < n_sessions:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("what", ["worker", "node"])
async def test_what_is_lost_is_made_again_once_and_counted(
    what: str,
    cluster: Any,
    tmp_path: Path,
    toy_host: PluginHost,  # noqa: F811
) -> None:
    go = asyncio.Event()

    def script(request: dict[str, Any]) -> Reply:
        if request["messages"][-1]["content"] == "wait" and not go.is_set():
            return Reply("not yet", status=503)
        return Reply("fine")

    extra = cluster.add_node(num_cpus=2, resources={"doomed": 8}) if what == "node" else None
    with ScriptedServer(script) as server:
        wanted = config(cluster, server.endpoint.url, WAITS, tmp_path)
        if what == "node":
            wanted = evolve(wanted, executor=evolve(wanted.executor, labels={"doomed": 1}, workers=1))
        task = load_tasks(wanted.taskset, toy_host)[0]
        specs = [RolloutSpec.of(task, "program", sample, run_seed=0) for sample in range(4)]
        async with Engine(wanted, toy_host, endpoint=evolve(server.endpoint, level="tokens")) as engine:
            rollouts = asyncio.gather(*map(engine.rollout, specs))
            await waiting(server, 4)
            sandboxes = [process for process in psutil.process_iter() if "bwrap" in process.name()]
            assert len(sandboxes) >= 4
            if extra is not None:
                cluster.remove_node(extra, allow_graceful=False)
                cluster.add_node(num_cpus=2, resources={"doomed": 8})
                lost = 4
            else:
                os.kill(processes("SessionWorker")[0].pid, signal.SIGKILL)
                lost = 2
            await waiting(server, 4 + lost)
            go.set()
            done = await rollouts
            executor = engine._executor
            assert executor.lost == lost  # type: ignore[attr-defined]
    _, left = psutil.wait_procs(sandboxes, timeout=30)
    assert not left, "the sandboxes of a lost worker end with it"
    assert [rollout.outcome.kind for rollout in done] == ["completed"] * 4
    assert len({rollout.id for rollout in done}) == 4, "never twice in one group"
    findings = [finding.message for rollout in done for finding in rollout.session.findings if finding.source == "ray"]
    assert len(findings) == lost
    assert all(message.startswith("lost with the worker on node ") for message in findings)


async def test_a_session_that_is_lost_twice_is_a_sandbox_error(cluster: Any, tmp_path: Path, toy_host: PluginHost) -> None:  # noqa: F811
    with ScriptedServer(lambda _: Reply("fine")) as server:
        wanted = config(cluster, server.endpoint.url, "ask('go'); time.sleep(600)", tmp_path, "executor.workers=1", "limits.sessions=1")
        task = load_tasks(wanted.taskset, toy_host)[0]
        async with Engine(wanted, toy_host, endpoint=evolve(server.endpoint, level="tokens")) as engine:
            rollout = asyncio.ensure_future(engine.rollout(RolloutSpec.of(task, "program", 0, run_seed=0)))
            for times in (1, 2):
                await waiting(server, times)
                os.kill(processes("SessionWorker")[-1].pid, signal.SIGKILL)
            done = await rollout
    assert (done.outcome.kind, done.verdict.status, done.reward.value) == ("sandbox_error", "unscorable", None)
    assert done.outcome.reason.endswith(", twice")


def test_a_worker_that_cannot_be_opened_is_named(cluster: Any, tmp_path: Path, toy_host: PluginHost) -> None:  # noqa: F811
    with ScriptedServer(lambda _: Reply("fine")) as server:
        wanted = config(cluster, server.endpoint.url, SOLVES, tmp_path, "sandbox.backend=docker")
        with pytest.raises(RunStopped, match=r"a session worker cannot start: sandbox 'docker' does not work here"):
            api.run(wanted, host=toy_host)


def test_a_cluster_without_room_is_named(cluster: Any, tmp_path: Path, toy_host: PluginHost, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    from longrein.cluster import executor

    monkeypatch.setattr(executor, "NO_NODE_S", 3.0)
    with ScriptedServer(lambda _: Reply("fine")) as server:
        wanted = config(cluster, server.endpoint.url, SOLVES, tmp_path, "executor.session_cpus=100")
        with pytest.raises(RunStopped, match=r"no node of the Ray cluster can run sessions: 2 workers wait for 200 CPUs each"):
            api.run(wanted, host=toy_host)


def test_hidden_tests_are_resolved_where_grading_runs_only(cluster: Any, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    taskset = f"taskset={{name='noting', options={{file='{notes}'}}}}"
    with ScriptedServer(lambda _: Reply(PROGRAM)) as server:
        result = api.run(config(cluster, server.endpoint.url, SOLVES, tmp_path, taskset, f"plugins.use=['{TOY}', '{PLUGIN}']"), samples=2)
    assert [rollout.verdict.status for rollout in result.rollouts] == ["passed"] * 4
    asked = notes.read_text().splitlines()
    assert len(asked) == 4
    assert all(line.startswith("ray::GradeWorker") for line in asked), asked


def test_a_comparison_on_the_cluster(cluster: Any, tmp_path: Path, toy_host: PluginHost) -> None:  # noqa: F811
    with ScriptedServer(lambda _: Reply(PROGRAM)) as server:
        wanted = config(cluster, server.endpoint.url, SOLVES, tmp_path, "agents.nop={}", "agents.oracle={}", "compare.samples=2")
        compared = api.compare(wanted, host=toy_host).comparison
    rates = {agent.agent: agent.pass_rate for agent in compared.figures}
    assert rates == {"program": 1.0, "nop": 0.0, "oracle": 1.0}


@pytest.mark.timeout(400)
def test_three_steps_of_training_with_sessions_on_the_cluster(cluster: Any, tmp_path: Path, model: Path) -> None:  # noqa: F811
    from longrein.training import train

    wanted = config(
        cluster,
        "http://unused/v1",
        "ask('go')",
        tmp_path,
        f"plugins.use=['{TOY}', '{PLUGIN}']",
        "reward.name=parity",
        "limits.max_reply_tokens=8",
        "train={max_steps=3, group_size=4, rows_per_step=8, learning_rate=1e-2, max_staleness=1}",
    )
    wanted = evolve(wanted, policy=evolve(wanted.policy, url=None, model=str(model)))
    folder = train(wanted)
    steps = [entry for entry in read_lines(folder / "metrics.jsonl") if "loss" in entry]
    assert [entry["step"] for entry in steps] == [1, 2, 3]
    assert all(entry["canary/difference_max"] < 1e-2 for entry in steps)
    versions = {turn.call.version_first for rollout in read_rollouts(folder) for turn in rollout.trajectory}
    assert versions >= {1, 2}, "workers hear of new versions"
