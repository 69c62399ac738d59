"""Both sandboxes with real processes: what gets in, what comes out, what is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longrein.agent import LaunchPlan
from longrein.config import Config, from_mapping
from longrein.errors import SandboxError
from longrein.sandbox import BubblewrapSandbox, ProcessResult, Sandbox, SandboxLimits, SupervisorSandbox, choose, runtime_folder
from longrein.testing.processes import running_with, unique_s

BACKENDS = [BubblewrapSandbox, SupervisorSandbox]
needs_bwrap = pytest.mark.skipif(BubblewrapSandbox.unavailable() is not None, reason=f"{BubblewrapSandbox.unavailable()}")


@pytest.fixture
def runtime() -> Iterator[Path]:
    with runtime_folder() as folder:
        for slot in (0, 7):
            (folder / f"s{slot}.sock").touch()
        yield folder
        assert {path.name for path in folder.iterdir()} <= {"s0.sock", "s7.sock", "etc"}
    assert not folder.exists()


@pytest.fixture(params=[pytest.param(BubblewrapSandbox, marks=needs_bwrap, id="bwrap"), pytest.param(SupervisorSandbox, id="supervisor")])
def make(request: pytest.FixtureRequest, runtime: Path) -> Callable[..., Sandbox]:
    return lambda **limits: request.param(limits=SandboxLimits(**limits), capture_port=1, runtime=runtime)


async def run(
    sandbox: Sandbox,
    script: str,
    *,
    plan_files: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
    env: dict[str, str] | None = None,
) -> ProcessResult:
    place = sandbox.place(0)
    plan = LaunchPlan(argv=["sh", "-c", script], env=env or {}, files=plan_files or {})
    session = await sandbox.start(0, plan, files=files or {}, toolchain=None)
    result = await session.wait()
    assert sandbox.name == "bwrap" or not Path(place.workdir).exists()
    return result


async def test_files_output_and_exit_code(make: Callable[..., Sandbox]) -> None:
    sandbox = make()
    home = sandbox.place(0).home
    result = await run(
        sandbox,
        "cat a/in.txt; cat $HOME/conf >&2; echo new > out.txt; cat; exit 3",
        files={"a/in.txt": "task\n"},
        plan_files={f"{home}/conf": "mine\n"},
    )
    assert (result.exit_code, result.ended_by, result.stdout, result.stderr) == (3, "exit", b"task\n", b"mine\n")
    assert result.workspace == {"a/in.txt": b"task\n", "out.txt": b"new\n"}
    assert result.record["backend"] == sandbox.name
    assert result.record["interpreter"] == str(Path(sys.executable).resolve())
    assert set(result.record["in_force"]) == {"network", "memory", "processes", "disk", "system calls"}


async def test_the_environment_is_the_plan_and_nothing_else(make: Callable[..., Sandbox], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_SECRET", "s3cret")
    sandbox = make()
    script = "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'" if sandbox.is_security_boundary else "env"
    result = await run(sandbox, script, env={"KEY": "k"})
    names = {line.split("=")[0] for line in result.stdout.decode().splitlines()}
    assert names - {"PWD", "SHLVL", "_", "OLDPWD"} == {"KEY", "HOME", "PATH", "TMPDIR", "LANG"}


async def test_python_of_the_place_runs(make: Callable[..., Sandbox]) -> None:
    sandbox = make()
    result = await run(sandbox, f"{sandbox.place(0).python} -c 'import sys, json, ssl; print(sys.version_info[:2])'; python3 -c 'print(1)'")
    assert result.stdout.decode() == f"{sys.version_info[:2]}\n1\n"


async def test_only_regular_files_are_collected(make: Callable[..., Sandbox]) -> None:
    script = "ln -s /etc/passwd link; ln -s / root; mkfifo pipe; mkdir d; echo x > d/f; chmod 000 d; echo y > ok; ln ok hard"
    result = await run(make(), script)
    assert set(result.workspace) - {"d/f"} == {"ok", "hard"}  # as root the closed folder can still be read


async def test_junk_cannot_crowd_out_the_solution(make: Callable[..., Sandbox]) -> None:
    result = await run(make(workspace_mb=1), "echo 1 > solution.py; truncate -s 50M a; head -c 800000 /dev/zero > b; cp b c")
    assert set(result.workspace) == {"solution.py", "b"}
    assert result.record["files_left_out"] == 2


async def test_folders_nested_beyond_what_recursion_takes_hide_nothing(make: Callable[..., Sandbox]) -> None:
    nest = "import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')"
    result = await run(make(), f'echo 1 > solution.py; python3 -c "{nest}"')
    assert (result.exit_code, result.workspace) == (0, {"solution.py": b"1\n"})


async def test_output_is_a_bounded_tail(make: Callable[..., Sandbox]) -> None:
    result = await run(make(output_kb=4), "head -c 3000000 /dev/zero | tr '\\0' a; echo end; head -c 3000000 /dev/zero >&2")
    assert len(result.stdout) == 4096
    assert result.stdout.endswith(b"aaaend\n")
    assert (len(result.stderr), result.exit_code) == (4096, 0)


async def test_large_files_are_refused(make: Callable[..., Sandbox]) -> None:
    result = await run(make(file_size_mb=1), "head -c 3000000 /dev/zero > big; echo $?; ls -s big >/dev/null")
    assert result.stdout != b"0\n"
    assert len(result.workspace.get("big", b"")) <= 1 << 20


async def test_one_process_cannot_take_all_memory(make: Callable[..., Sandbox]) -> None:
    result = await run(make(memory_mb=200), "python3 -c 'x = bytearray(10**9)' || echo refused")
    assert result.stdout == b"refused\n"


@pytest.mark.parametrize("first", ["true", "sleep 3"], ids=["at once", "after a quiet while"])
async def test_too_many_processes_end_the_session(first: str, make: Callable[..., Sandbox]) -> None:
    result = await run(make(max_processes=20), f"{first}; for i in $(seq 30); do sleep 999 & done; wait")
    assert result.exit_code == 250
    assert b"processes, limit 20" in result.stderr


async def test_much_memory_ends_the_session_after_a_quiet_while(make: Callable[..., Sandbox]) -> None:
    hold = "import sys, time; held = bytearray(80 << 20); print('held', flush=True); time.sleep(999)"
    result = await run(make(memory_mb=200), f'sleep 3; for i in 1 2 3; do python3 -c "{hold}" & done; wait')
    assert b"MiB of memory, limit 200" in result.stderr


async def test_what_an_agent_left_running_is_dead_before_its_files_are_read(make: Callable[..., Sandbox]) -> None:
    script = "setsid sh -c 'while :; do echo x >> grows; done' >/dev/null 2>&1 & sleep 0.2; echo done"
    result = await run(make(), script)
    assert result.stdout == b"done\n"
    assert not processes("grows")


async def test_stop_ends_the_tree_and_keeps_the_files(make: Callable[..., Sandbox]) -> None:
    sandbox = make()
    token = f"9{os.getpid()}1"
    sandbox.place(0)
    plan = LaunchPlan(argv=["sh", "-c", f"trap '' TERM INT; echo 1 > kept; setsid sleep {token} & echo up; while :; do :; done"])
    session = await sandbox.start(0, plan, files={}, toolchain=None)
    started = session.last_output()
    while session.last_output() == started:
        await asyncio.sleep(0.01)
    session.stop("timeout")
    session.stop("later")
    result = await session.wait()
    assert (result.exit_code, result.ended_by, result.stdout, result.workspace) == (None, "timeout", b"up\n", {"kept": b"1\n"})
    assert not processes(token)


async def test_a_program_that_does_not_exist_is_a_sandbox_error(make: Callable[..., Sandbox]) -> None:
    sandbox = make()
    sandbox.place(0)
    with pytest.raises(SandboxError, match=r"cannot start no-such-agent: .*No such file"):
        await sandbox.start(0, LaunchPlan(argv=["no-such-agent"]), files={}, toolchain=None)


@pytest.mark.parametrize("name", ["/etc/x", "../x", "/work/../x"])
async def test_files_stay_below_the_place(make: Callable[..., Sandbox], name: str) -> None:
    sandbox = make()
    sandbox.place(0)
    with pytest.raises(SandboxError, match="only paths below"):
        await sandbox.start(0, LaunchPlan(argv=["true"], files={name: ""}), files={}, toolchain=None)


@needs_bwrap
async def test_bwrap_shows_constant_paths_no_network_and_a_read_only_system(runtime: Path) -> None:
    sandbox = BubblewrapSandbox(limits=SandboxLimits(), capture_port=None, runtime=runtime)
    script = """pwd; echo $HOME; hostname; ls -d /root /home/* /tmp/* /var 2>/dev/null
    for file in /usr/x /x /opt/longrein/x /etc/x /home/x; do touch $file 2>/dev/null && echo writable $file; done
    python3 -c '
import socket
print([name for _, name in socket.if_nameindex()])
try: socket.create_connection(("1.1.1.1", 53), 1)
except OSError: print("no network")'; cat /proc/1/comm"""
    result = await run(sandbox, script)
    base = [] if not sys.base_prefix.startswith("/root") else ["/root"]
    assert result.stdout.decode().split("\n")[:-1] == [
        "/work",
        "/home/agent",
        "longrein",
        "/home/agent",
        *base,
        "['lo']",
        "no network",
        Path(sys.executable).resolve().name,
    ]


ENGINE = """
import asyncio, sys
from pathlib import Path
from longrein.agent import LaunchPlan
from longrein.sandbox import *
async def main():
    with runtime_folder() as runtime:
        (runtime / "s7.sock").touch()
        backend = {b.name: b for b in (BubblewrapSandbox, SupervisorSandbox)}[sys.argv[1]]
        sandbox = backend(limits=SandboxLimits(), capture_port=1, runtime=runtime)
        place = sandbox.place(7)
        script = f"setsid sleep {sys.argv[2]} & (while :; do sleep 0.01; : {sys.argv[2]}; done) & sleep {sys.argv[2]}"
        session = await sandbox.start(7, LaunchPlan(argv=["sh", "-c", script]), files={}, toolchain=None)
        print(runtime, place.workdir, flush=True)
        await session.wait()
asyncio.run(main())
"""


@pytest.mark.parametrize("backend", [pytest.param("bwrap", marks=needs_bwrap), "supervisor"])
def test_nothing_survives_the_engine(backend: str) -> None:
    token = f"8{os.getpid()}{len(backend)}"
    engine = subprocess.Popen([sys.executable, "-c", ENGINE, backend, token], stdout=subprocess.PIPE, text=True)
    assert engine.stdout is not None
    runtime, workdir = map(Path, engine.stdout.readline().split())
    assert processes(token)
    engine.send_signal(signal.SIGKILL)
    engine.wait()
    engine.stdout.close()
    eventually(lambda: not processes(token))
    eventually(lambda: not runtime.exists() and not workdir.parent.joinpath("lock").exists())


def test_two_engines_never_share_a_slot(runtime: Path) -> None:
    first, second = (SupervisorSandbox(limits=SandboxLimits(), capture_port=1, runtime=runtime) for _ in range(2))
    places = {first.place(0).workdir, second.place(0).workdir, first.place(1).workdir}
    assert len(places) == 3
    assert first.place(0) == first.place(0)
    for sandbox in (first, second):
        for slot in list(sandbox._held):
            sandbox._release(slot)


def config(backend: str, **policy: str) -> Config:
    return from_mapping({"taskset": "x", "agents": {"nop": {}}, "sandbox": {"backend": backend}, "policy": policy})


def test_choose_says_why_and_how_to_mend(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    class Host:
        def sandbox(self, name: str) -> type[Sandbox]:
            return {backend.name: backend for backend in BACKENDS}[name]

    assert choose(config("supervisor"), Host()) is SupervisorSandbox
    monkeypatch.setenv("PATH", "/nonexistent")
    assert choose(config("auto"), Host()) is SupervisorSandbox
    assert "no security boundary" in caplog.text
    with pytest.raises(SandboxError, match=r"'bwrap' does not work here: bubblewrap is not installed \(Debian.*apt-get install"):
        choose(config("bwrap"), Host())


def processes(token: str) -> list[str]:
    """Return the command lines of live processes that hold `token`, this one's own children of pytest left out."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if token in line and "asyncio" not in line:
                found.append(line)
    return found


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "did not happen in 20 s"
        time.sleep(0.02)


def test_a_process_that_was_started_on_a_session_folder_goes_with_it_and_the_policy_server_ends_by_itself() -> None:
    def started_on(path: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", str(path)])

    with runtime_folder() as folder:
        hung, server = started_on(folder / "s0" / "work"), started_on(folder / "policy.sock")
    assert hung.wait(timeout=20) == -signal.SIGKILL
    assert server.poll() is None
    server.kill()
    server.wait()


@pytest.mark.parametrize("n_steps", range(40))
async def test_a_start_that_is_cancelled_at_any_step_ends_and_leaves_nothing(n_steps: int, make: Callable[..., Sandbox]) -> None:
    sandbox, mark = make(), unique_s()
    sandbox.place(0)
    plan = LaunchPlan(argv=["sleep", mark])
    starting = asyncio.create_task(sandbox.start(0, plan, files={}, toolchain=None))
    for _ in range(n_steps):
        await asyncio.sleep(0)
        if n_steps >= 20:  # lets the process get ahead
            await asyncio.get_running_loop().run_in_executor(None, os.sched_yield)
    async with asyncio.timeout(50):
        if starting.cancel():
            with pytest.raises(asyncio.CancelledError):
                await starting
        else:  # it had started already
            session = await starting
            session.stop("test")
            await session.wait()
    assert not running_with(mark)
