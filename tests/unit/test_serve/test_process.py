"""The server as a process: it starts with its parent's word, is controlled through its socket and ends with its parent."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from longrein.errors import CaptureError, ServeError
from longrein.serve.canary import sample_canary, score
from longrein.serve.process import ControlClient, ServerProcess
from longrein.serve.weights import write_weights

from .conftest import TASK


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("r")


@pytest.fixture(scope="module")
def server(model_dir: Path, runtime: Path) -> Iterator[ServerProcess]:
    server = ServerProcess.start(model_dir, runtime=runtime, log=runtime / "log")
    yield server
    server.stop()
    assert not server.alive
    assert [path.name for path in runtime.iterdir()] == ["log"], "the sockets must go"
    assert not server.weights.exists(), "the weights must go"
    server.stop()


def chat(server: ServerProcess, **body: Any) -> Any:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(server.endpoint.uds)), timeout=60) as client:
        reply = client.post(f"{server.endpoint.url}/chat/completions", json={"messages": [TASK], **body})
    return reply.json()


def test_the_endpoint_says_what_is_served(server: ServerProcess) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(server.endpoint.uds))) as client:
        model = client.get(f"{server.endpoint.url}/models").json()["data"][0]
        assert client.get("http://policy/health").json() == {"status": "ok", "version": server.control.status()["version"]}
        for route in ("/pause", "/v1/load", "/docs"):
            assert client.post(f"http://policy{route}").status_code == 404
    assert (model["id"], model["max_model_len"]) == (server.endpoint.model, server.endpoint.max_model_len) == ("tiny", 1024)


def test_only_this_user_reaches_the_sockets_and_weights(server: ServerProcess, runtime: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (runtime / "policy.sock", runtime / "control.sock", server.weights)}
    assert modes == {"policy.sock": 0o600, "control.sock": 0o600, server.weights.name: 0o700}


async def test_a_paused_server_queues_and_goes_on_with_the_new_weights(server: ServerProcess, make_model: Callable[[int], Any]) -> None:
    version = server.control.status()["version"] + 1
    server.control.pause()
    async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(server.endpoint.uds)), timeout=60) as client:
        request = asyncio.create_task(client.post(f"{server.endpoint.url}/chat/completions", json={"messages": [TASK], "max_tokens": 3}))
        while not (status := await asyncio.to_thread(server.control.status))["queued"]:
            assert status["paused"]
        server.control.load(write_weights(make_model(version).named_parameters(), server.weights, version), version)
        assert not request.done()
        server.control.resume()
        assert (await request).json()["longrein"] == {"version_first": version, "version_last": version}
    assert server.control.status()["version"] == version


def test_the_canary_sings_for_equal_weights_only(server: ServerProcess, make_model: Callable[[int], Any]) -> None:
    model, before = make_model(40).train(), sample_canary(server.endpoint)
    server.control.load(write_weights(model.named_parameters(), server.weights, 40), 40)
    sample = sample_canary(server.endpoint)
    assert (sample.version, len(sample.sampled_ids)) == (40, 32)
    assert score(model, sample.prompt_ids, sample.sampled_ids) == pytest.approx(sample.logprobs, abs=1e-4)
    assert model.training
    assert score(model, before.prompt_ids, before.sampled_ids) != pytest.approx(before.logprobs, abs=1e-2)


def test_only_the_runs_own_weights_are_loaded(server: ServerProcess, model_dir: Path) -> None:
    before = server.control.status()["version"]
    outside = model_dir / "model.safetensors"
    link = server.weights / "version-00000099.safetensors"
    link.symlink_to(outside)
    for path in (outside, link, server.weights / ".." / "x", Path("/etc/passwd")):
        with pytest.raises(ServeError, match="only files below"):
            server.control.load(path, 99)
    link.unlink()
    with pytest.raises(ServeError, match="cannot read weights"):
        server.control.load(server.weights / "none.safetensors", 99)
    assert server.control.status()["version"] == before


def test_the_control_socket_answers_nonsense_with_the_reason(server: ServerProcess) -> None:
    with pytest.raises(ServeError, match="unknown pause mode 'now'; known: wait"):
        server.control.pause("now")
    unknown = "known: load, pause, resume, status"
    for line, reason in ((b"{", "JSONDecodeError"), (b'{"call": "exit"}', unknown), (b'{"path": "x"}', "call")):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(server.control.path))
            connection.sendall(line + b"\n")
            assert reason in json.loads(connection.makefile().readline())["error"]
    with pytest.raises(ServeError, match=r"does not answer on .*none\.sock"):
        ControlClient(server.control.path.with_name("none.sock")).status()


def test_two_generations_are_kept_and_shared_tensors_are_written_once(make_model: Callable[[int], Any], tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = make_model(5)
    for version in (8, 9, 10, 11):
        path = write_weights(model.state_dict().items(), tmp_path, version)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["version-00000010.safetensors", "version-00000011.safetensors"]
    assert sorted(load_file(path)) == sorted(dict(model.named_parameters()))
    with pytest.raises(ServeError, match="no weights to write for version 12"):
        write_weights([], tmp_path, 12)


PARENT = """
import sys
from pathlib import Path
import httpx
from longrein.serve.process import ServerProcess
server = ServerProcess.start(Path(sys.argv[1]), runtime=Path(sys.argv[2]), log=Path(sys.argv[2]) / "log")
client = httpx.Client(transport=httpx.HTTPTransport(uds=str(server.endpoint.uds)))
body = {"messages": [{"role": "user", "content": "x"}], "stream": True, "ignore_eos": True}
with client.stream("POST", "http://policy/v1/chat/completions", json=body) as reply:
    next(reply.iter_lines())
    print(server.pid, server.weights, flush=True)
    sys.stdin.read()
"""


def test_the_server_ends_in_mid_reply_when_its_parent_is_killed(model_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(model_dir), str(tmp_path)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdin is not None
    with parent.stdout, parent.stdin:
        pid, weights = parent.stdout.readline().split()
        server = psutil.Process(int(pid))
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        psutil.wait_procs([server], timeout=20)
    assert not server.is_running()
    assert [path.name for path in tmp_path.iterdir()] == ["log"]
    assert not Path(weights).exists()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"(?s)did not start \(exit code 1\).*none is not a model folder"):
        ServerProcess.start(tmp_path / "none", runtime=tmp_path, log=tmp_path / "log")


def test_what_this_server_cannot_serve_is_refused(model_dir: Path, tmp_path: Path) -> None:
    from longrein.serve.loading import load_policy

    folder = shutil.copytree(model_dir, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())

    def load(**values: Any) -> None:
        (folder / "config.json").write_text(json.dumps({**config, **values}))
        load_policy(folder, dtype="float32", max_model_len=None, threads=1)

    with pytest.raises(ServeError, match="a sliding window; the embedded server only has full attention"):
        load(sliding_window=64)
    with pytest.raises(ServeError, match="cannot load a causal language model"):
        load(model_type="nonsense", architectures=["Nonsense"])
    with pytest.raises(ServeError, match=r"unknown dtype 'float23'; known: .*did you mean 'float32'"):
        load_policy(model_dir, dtype="float23", max_model_len=None, threads=1)
    with pytest.raises(ServeError, match="max_model_len 5000 is not usable: the model takes 1 to 1024 tokens"):
        load_policy(model_dir, dtype="float32", max_model_len=5000, threads=1)
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(ServeError, match=r"no chat template; add chat_template\.jinja"):
        load()


def test_openenv_grades_it_as_trainable(agent_dir: Path) -> None:
    from openenv.core.harness.capture.validate_llm import validate_llm

    command = [sys.executable, "-m", "longrein.serve", "--model", str(agent_dir), "--port", "0", "--exit-with-stdin"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        ready = json.loads(process.stdout.readline())
        report = validate_llm(ready["url"], ready["model"])
        process.stdin.close()
        assert process.wait(timeout=20) == 0
    assert (report.ok, report.capture_level, report.param_fixes) == (True, "tokens", [])
    assert report.logprobs_mode != "raw"
    assert not [finding for finding in report.findings if "FATAL" in finding]


def test_a_socket_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    from longrein.capture.listen import unix_listener

    with pytest.raises(CaptureError, match="unix sockets allow 107"):
        unix_listener(tmp_path / ("x" * 120))
