"""Why a backend is refused, what is in force, control groups, and the docker command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from longrein.agent import LaunchPlan
from longrein.config import Config, from_mapping
from longrein.errors import SandboxError
from longrein.plugins import PluginHost
from longrein.sandbox import (
    BubblewrapSandbox,
    DockerSandbox,
    Sandbox,
    SandboxLimits,
    SandboxPolicy,
    SupervisorSandbox,
    bwrap,
    cgroup,
    choose,
    runtime_folder,
)

NO_ENGINE = DockerSandbox.unavailable()


@pytest.fixture
def runtime() -> Iterator[Path]:
    with runtime_folder() as folder:
        (folder / "s0.sock").touch()
        yield folder


def config(backend: str, **policy: str) -> Config:
    return from_mapping({"taskset": "x", "agents": {"nop": {}}, "sandbox": {"backend": backend}, "policy": policy})


def program(folder: Path, name: str, script: str) -> None:
    """Put a program of our own first on PATH."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.mark.parametrize(
    ("switch", "value", "reason"),
    [
        ("kernel/unprivileged_userns_clone", "0", "unprivileged user namespaces are off .*sysctl -w kernel.unprivileged_userns_clone=1"),
        ("user/max_user_namespaces", "0", "user namespaces are off .*sysctl -w user.max_user_namespaces=10000"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "AppArmor refuses .*sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
        ("kernel/other", "0", "bwrap: setting up uid map: Permission denied .*docker run --security-opt"),
    ],
)
def test_bwrap_that_does_not_work_is_refused_with_the_switch_that_is_off(
    switch: str, value: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that fails as bubblewrap does stands in for it: switching this machine's namespaces off would stop other things."""
    program(tmp_path / "bin", "bwrap", "echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(bwrap, "SYSCTL", tmp_path)
    (tmp_path / switch).parent.mkdir()
    (tmp_path / switch).write_text(f"{value}\n")
    with pytest.raises(SandboxError, match=f"'bwrap' does not work here: bubblewrap cannot make a sandbox here: {reason}"):
        choose(config("bwrap"), PluginHost.load())


def test_the_supervisor_is_refused_for_training_against_an_endpoint_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    host = PluginHost.load()
    vllm = {"url": "http://127.0.0.1:8000/v1", "model": "m"}
    with pytest.raises(SandboxError, match=r"'supervisor' is refused for training against \[policy\] url: .*127.0.0.1:8000.*no key"):
        choose(config("supervisor", **vllm), host, training=True)
    assert choose(config("supervisor", **vllm), host) is SupervisorSandbox
    assert choose(config("supervisor"), host, training=True) is SupervisorSandbox
    assert "no security boundary" in caplog.text


async def test_an_agent_cannot_kill_its_supervisor(runtime: Path) -> None:
    sandbox = SupervisorSandbox(limits=SandboxLimits(), capture_port=1, runtime=runtime)
    place = sandbox.place(0)
    code = """
import os, signal
for pid in (os.getppid(), -os.getppid(), -1):
    try: os.kill(pid, signal.SIGKILL)
    except PermissionError: print("refused")
"""
    session = await sandbox.start(0, LaunchPlan([str(place.python), "-c", code]), files={}, toolchain=None)
    result = await session.wait()
    assert (result.exit_code, result.stdout) == (0, b"refused\n" * 3)


def test_the_policy_is_made_from_the_config_alone() -> None:
    values = {
        "taskset": "x",
        "agents": {"nop": {}},
        "sandbox": {"tools": ["bash"], "limits": {"disk_mb": 7}},
        "limits": {"max_calls": 3},
    }
    policy = SandboxPolicy.of(from_mapping(values), BubblewrapSandbox)
    assert (policy.enforced, policy.network, policy.tools, policy.limits.disk_mb, policy.budget.max_calls) == (
        True,
        "model",
        ("bash",),
        7,
        3,
    )
    assert policy == SandboxPolicy.of(from_mapping({**values, "train": {"max_steps": 3}, "run": {"seed": 5}}), BubblewrapSandbox)
    assert SandboxPolicy.of(from_mapping(values), SupervisorSandbox).network == "host"


# Control groups: a tree of plain files stands in for the kernel's ------------------------------------------------------


def groups(root: Path, controllers: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make /proc/self and a cgroup mount in which this process is in user.slice/mine."""
    mount = root / "mount"
    (mount / "user.slice" / "mine").mkdir(parents=True)
    (mount / "cgroup.subtree_control").write_text("memory\n")
    (mount / "user.slice" / "cgroup.subtree_control").write_text(controllers)
    (root / "cgroup").write_text("4:memory:/elsewhere\n0::/user.slice/mine\n")
    (root / "mountinfo").write_text(f"30 23 0:26 / {mount} rw,nosuid - cgroup2 cgroup2 rw\n")
    monkeypatch.setattr(cgroup, "PROC", root)
    return mount / "user.slice"


def test_sessions_are_put_into_a_limited_group_where_one_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = groups(tmp_path, "cpu memory pids\n", monkeypatch)
    runtime = tmp_path / "lr-x"
    runtime.mkdir()
    found = cgroup.ControlGroups.find(runtime, SandboxLimits(memory_mb=10, max_processes=5))
    assert found is not None
    assert found.folder == parent / "longrein-lr-x" == (runtime / cgroup.LINK).readlink()
    assert (found.folder / "cgroup.subtree_control").read_text() == "+memory +pids"
    group = found.make(3)
    done = subprocess.run([*group.enter(), "sh", "-c", "echo $0 $1", "a b"], capture_output=True, text=True, check=True)
    assert done.stdout == "a b\n"
    assert (group.folder / "cgroup.procs").read_text() == "0\n"
    group.remove()
    assert (group.folder / "cgroup.kill").read_text() == "1"
    assert cgroup.limited_by(grouped=True) == {"memory": "cgroup v2", "processes": "cgroup v2"}


@pytest.mark.parametrize("controllers", ["cpu memory\n", "\n"])
def test_without_the_controllers_limits_are_watched(controllers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    groups(tmp_path, controllers, monkeypatch)
    assert cgroup.ControlGroups.find(tmp_path, SandboxLimits()) is None
    assert SupervisorSandbox.protections()["processes"] == "watched"


# Docker --------------------------------------------------------------------------------------------------------------

RECORD = """
printf '%s\\0' "$@" > {folder}/argv
env -0 > {folder}/environ
mount=$(printf '%s\\n' "$@" | sed -n 's/^type=bind,src=\\(.*\\),dst=.work$/\\1/p')
cat "$mount/in.txt" > {folder}/in.txt
echo made > "$mount/out.txt"
echo ready >&2; echo said; echo warned >&2; exit 3
"""


async def start_docker(runtime: Path, env: Mapping[str, str], **options: str) -> Sandbox:
    sandbox = DockerSandbox(
        limits=SandboxLimits(memory_mb=100), capture_port=None, runtime=runtime, options=DockerSandbox.Options(**options)
    )
    plan = LaunchPlan(["agent", "--yes"], env=env, files={"/home/agent/conf": "c"}, workdir_too="/app")
    session = await sandbox.start(0, plan, files={"in.txt": "task"}, toolchain=None)
    result = await session.wait()
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"said\n", b"warned\n")
    assert result.workspace == {"in.txt": b"task", "out.txt": b"made\n"}
    assert (result.record["backend"], result.record["image"]) == ("docker", "img:1")
    return sandbox


async def test_the_docker_command_line(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that records its arguments stands in for docker: no container runs."""
    program(tmp_path / "bin", "docker", RECORD.format(folder=tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    await start_docker(runtime, {"API_KEY": "s3cret"}, image="img:1")
    *argv, plan, empty = (tmp_path / "argv").read_text().split("\0")
    assert not empty
    line = " ".join(argv)
    for part in (
        "run --rm --interactive --pull never --network none --read-only --cap-drop ALL --security-opt no-new-privileges",
        f"--user {os.getuid()}:{os.getgid()}",
        "--memory 100m --memory-swap 100m --pids-limit 2048",
        "--tmpfs /tmp:rw,exec,size=1024m --shm-size 64m",
        f"--mount type=bind,src={runtime}/s0.sock,dst=/opt/longrein/policy,readonly",
        "--env API_KEY --env HOME=/home/agent",
        f"--workdir /work --entrypoint {bwrap.interpreter()} img:1 -I -S /opt/longrein/init.py",
    ):
        assert part in line
    assert "s3cret" not in line + plan
    assert "API_KEY=s3cret" in (tmp_path / "environ").read_text().split("\0")
    assert (tmp_path / "in.txt").read_text() == "task"
    started = json.loads(plan)
    assert (started["argv"], started["engine_fd"], started["relay_socket"]) == (["agent", "--yes"], 2, "/opt/longrein/policy")
    writable = [argv[i + 1] for i, word in enumerate(argv) if word == "--mount" and not argv[i + 1].endswith(",readonly")]
    assert [mount.rpartition("dst=")[2] for mount in writable] == ["/work", "/home/agent", "/app"]
    assert [path.name for path in runtime.iterdir()] == ["s0.sock"]


async def test_what_docker_says_is_the_reason(runtime: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "docker", "echo 'Unable to find image' >&2; echo 'See docker run --help' >&2; exit 125")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(SandboxError, match="Unable to find image\nSee docker run --help"):
        await start_docker(runtime, {})


def test_docker_without_an_engine_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    with pytest.raises(SandboxError, match=r"docker's engine does not answer: Cannot connect to the Docker daemon \(start it"):
        choose(config("docker"), PluginHost.load())


@pytest.mark.skipif(NO_ENGINE is not None, reason=f"needs a container engine: {NO_ENGINE}")
async def test_a_session_in_a_real_container(runtime: Path) -> None:
    image = f"python:{sys.version_info[0]}.{sys.version_info[1]}-slim"
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode:
        pytest.skip(f"needs the image {image}")
    sandbox = DockerSandbox(limits=SandboxLimits(), capture_port=None, runtime=runtime, options=DockerSandbox.Options(image=image))
    session = await sandbox.start(0, LaunchPlan(["sh", "-c", "cat in.txt; echo x > out.txt"]), files={"in.txt": "task"}, toolchain=None)
    result = await session.wait()
    assert (result.exit_code, result.stdout, result.workspace) == (0, b"task", {"in.txt": b"task", "out.txt": b"x\n"})
