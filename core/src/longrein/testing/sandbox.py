"""The conformance kit for sandboxes: `class TestMySandbox(SandboxContract): sandbox = MySandbox`."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from attrs import frozen

from longrein.agent import AgentAdapter, Capabilities, LaunchPlan, Session
from longrein.config import from_mapping
from longrein.model import PublicTask, SessionResult, Task, TaskRef
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.spec import RolloutSpec
from longrein.sandbox import Sandbox
from longrein.testing.contract import Contract, not_applicable, require
from longrein.testing.processes import running_with, unique_s
from longrein.testing.stage import wanting

LIMITS = {"memory_mb": 300, "max_processes": 40, "file_size_mb": 2}


class SandboxContract(Contract):
    """What every sandbox holds to, tried with sessions of small programs. A backend that does not work here is not tried."""

    sandbox: ClassVar[type[Sandbox]]

    def test_constant_paths(self) -> None:
        """Workspace and home have the same paths in every session, and the home is the agent's own."""
        said = [self._run("pwd; echo $HOME; ls -a $HOME | wc -l; touch $HOME/mine")[0].stdout.split() for _ in range(2)]
        require(said[0] == said[1] and len(said[0]) == 3, f"two sessions stood in {said[0]} and {said[1]}")

    def test_files_in_and_out(self) -> None:
        """Files are placed, the workspace comes back with what was changed, output and exit code are kept."""
        script = "cat in/task.txt; cat $HOME/conf/mine >&2; rm in/task.txt; echo new > out.txt; ln -s /etc/passwd link; exit 3"
        (result,) = self._run(script, files={"in/task.txt": "é task\n"}, home={"conf/mine": "mine\n"})
        require((result.stdout, result.stderr) == ("é task\n", "mine\n"), f"it read {result.stdout!r} and {result.stderr!r}")
        require(result.exit_code == 3, f"exit code {result.exit_code}, wanted 3")
        require(dict(result.workspace) == {"out.txt": b"new\n"}, f"the workspace came back as {dict(result.workspace)}")

    def test_workdir_at_a_second_path(self) -> None:
        """Where it says that it can, the working folder is shown at the path by which a task names it."""
        if not self.sandbox.shows_workdir_twice:
            not_applicable("this sandbox shows the working folder at one path, and says so")
        (result,) = self._run("cat /kit-app/in.txt; echo out > /kit-app/out.txt", files={"in.txt": "in\n"}, workdir="/kit-app")
        require(result.stdout == "in\n" and result.workspace.get("out.txt") == b"out\n", f"/kit-app is another folder: {result.stderr!r}")

    def test_environment_is_cleared(self) -> None:
        """The environment is the plan's with HOME, PATH, TMPDIR and LANG; nothing of the engine's gets in."""
        os.environ["LONGREIN_KIT_SECRET"] = "secret"
        try:
            (result,) = self._run("env", env={"GIVEN": "x"})
        finally:
            del os.environ["LONGREIN_KIT_SECRET"]
        names = {line.partition("=")[0] for line in result.stdout.splitlines()} - {"PWD", "OLDPWD", "SHLVL", "_"}
        require(names == {"GIVEN", "HOME", "PATH", "TMPDIR", "LANG"}, f"the environment holds {', '.join(sorted(names))}")

    def test_input_is_closed(self) -> None:
        """Standard input is at its end, and there is no terminal."""
        (result,) = self._run("cat; if (: < /dev/tty) 2>/dev/null; then echo terminal; fi; echo done")
        require(result.stdout == "done\n", f"it said {result.stdout!r}")

    def test_python_runs(self) -> None:
        """The interpreter of the place runs with its standard library."""
        (result,) = self._run('"$PYTHON" -c "import ssl, sqlite3, json; print(json.dumps([1]))"')
        require(result.stdout == "[1]\n", f"it said {result.stdout!r} {result.stderr[-300:]!r}")

    def test_leaves_no_process(self) -> None:
        """When the agent ends, what it started in the background ends too, whatever session or group it is in."""
        mark = unique_s()
        self._run(f"setsid sleep {mark} & (setsid nohup sleep {mark} >/dev/null 2>&1 &) ; exit 0")
        require(not running_with(mark), f"still running: {'; '.join(running_with(mark))}")

    def test_ends_the_tree_at_a_limit(self) -> None:
        """A session that reaches its time limit ends with every process."""
        mark = unique_s()
        (result,) = self._run(f"trap '' TERM INT HUP; setsid sleep {mark} & sleep {mark}; sleep {mark}", timeout_s=3)
        require(result.outcome.kind == "timeout", f"ended as {result.outcome}")
        require(not running_with(mark), f"still running: {'; '.join(running_with(mark))}")

    def test_limits_file_size(self) -> None:
        """No file grows over its limit."""
        (result,) = self._run("head -c 8000000 /dev/zero > big; ls -l big | tr -s ' ' | cut -d ' ' -f 5")
        size = int(result.stdout.split()[-1]) if result.stdout.split() else 0
        require(size <= LIMITS["file_size_mb"] << 20, f"a file of {size} bytes, the limit is {LIMITS['file_size_mb']} MiB")

    def test_limits_memory(self) -> None:
        """A program that takes more memory than the limit does not get it."""
        take = "x = [bytearray(1 << 20) for _ in range(1500)]; [b.__setitem__(0, 1) for b in x]; import time; time.sleep(3); print('kept')"
        (result,) = self._run(f'"$PYTHON" -c "{take}"')
        require("kept" not in result.stdout, f"1500 MiB were kept, the limit is {LIMITS['memory_mb']} MiB")

    def test_limits_processes(self) -> None:
        """A session cannot have more processes than the limit for long."""
        (result,) = self._run("i=0; while [ $i -lt 200 ]; do sleep 60 & i=$((i+1)); done; sleep 5; echo kept")
        require("kept" not in result.stdout, f"200 processes were kept, the limit is {LIMITS['max_processes']}")

    def test_network_is_none(self) -> None:
        """Unless it says that it shares the host's network, a session reaches neither the host's ports nor another machine."""
        if self.sandbox.shares_network:
            not_applicable("this sandbox shares the host's network, and says so")
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            program = (
                f"import socket; s = socket.socket(); s.settimeout(5); print(s.connect_ex(('127.0.0.1', {port})), socket.if_nameindex())"
            )
            (result,) = self._run(f'"$PYTHON" -c "{program}"')
        code, _, names = result.stdout.partition(" ")
        require(code.strip("\n") not in ("", "0"), f"a port of the host was reached: {result.stdout!r} {result.stderr[-300:]!r}")
        require(names.count("(") == 1 and "'lo'" in names, f"the session has the interfaces {names}")

    def test_host_is_hidden(self) -> None:
        """A security boundary hides the host's files, processes and environments."""
        if not self.sandbox.is_security_boundary:
            not_applicable("this sandbox is no security boundary, and says so")
        secret = f"secret-{secrets.token_hex(8)}"
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "answers.txt")
            path.write_text(secret, encoding="utf-8")
            script = f"cat {path} {Path(__file__)}; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; ls /proc"
            (result,) = self._run(script)
        said = result.stdout + result.stderr
        require(secret not in said and "conformance kit for sandboxes" not in said, "a file of the host was read")
        require(str(os.getpid()) not in result.stdout.split(), "processes of the host are seen")

    def test_sessions_are_apart(self) -> None:
        """Two sessions at once have their own files and end with their own."""
        first, second = self._run('echo "$0" > mine; sleep 1; cat mine; ls | wc -l', at_once=2)
        require((first.outcome.kind, second.outcome.kind) == ("completed", "completed"), f"ended as {first.outcome} and {second.outcome}")
        require(first.stdout == second.stdout and first.stdout.endswith("1\n"), f"they saw {first.stdout!r} and {second.stdout!r}")

    def test_leaves_no_file(self) -> None:
        """Nothing is left of a session but what was handed back."""
        name = f"left-{secrets.token_hex(6)}"
        with tempfile.TemporaryDirectory(dir="/tmp", prefix="k") as folder:  # short: sockets stand below it
            before, tempfile.tempdir = tempfile.tempdir, folder
            try:
                (result,) = self._run(
                    f"touch {name} $HOME/{name} $TMPDIR/{name}; mkdir -p deep/{name}; chmod 0 deep; pwd; echo $HOME; echo $TMPDIR"
                )
            finally:
                tempfile.tempdir = before
            left = [path.name for path in Path(folder).iterdir()]
        left += [str(path) for place in result.stdout.split() if (path := Path(place, name)).exists()]
        require(not left, f"left behind: {', '.join(left)}")

    def _run(
        self,
        script: str,
        *,
        files: Mapping[str, str] | None = None,
        home: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60,
        at_once: int = 1,
        workdir: str | None = None,
    ) -> Sequence[SessionResult]:
        """Run a shell script in sessions of this sandbox."""
        if (reason := self.sandbox.unavailable()) is not None:
            not_applicable(reason)
        shell = Shell(script, dict(files or {}), dict(home or {}), env, workdir)
        results = asyncio.run(_run(self.sandbox, self.options, shell, timeout_s, at_once))
        for result in results:
            require(result.outcome.kind != "sandbox_error", f"the session could not be made: {result.outcome.reason}")
        return results


@frozen
class Shell:
    """A script for sh, and what it finds."""

    script: str
    files: Mapping[str, str]
    home: Mapping[str, str]
    env: Mapping[str, str] | None
    workdir: str | None = None
    """A second path of its working folder."""


async def _run(sandbox: type[Sandbox], options: Mapping[str, Any], shell: Shell, timeout_s: float, at_once: int) -> Sequence[SessionResult]:
    class Program(AgentAdapter):
        name = "rehearsal"
        capabilities = Capabilities(dialect="none", tools=False, calls_model=False)

        def launch(self, session: Session) -> LaunchPlan:
            files = {f"{session.home}/{name}": text for name, text in shell.home.items()}
            script = shell.script.replace('"$PYTHON"', f'"{session.python}"')
            return LaunchPlan(["sh", "-c", script], env=dict(shell.env or {}), files=files)

    limits = {"timeout_s": timeout_s, "idle_s": 2 * timeout_s, "sessions": at_once}
    backend = {"backend": sandbox.name, "limits": LIMITS, "options": options}
    config = from_mapping({"taskset": "rehearsal", "agents": {"rehearsal": {}}, "limits": limits, "sandbox": backend})
    host = PluginHost.load().with_classes({("agent", "rehearsal"): Program, ("sandbox", sandbox.name): sandbox, **wanting({"t": {}})})
    async with Engine(config, host, endpoint=None) as engine:
        task = Task("t", "t", PublicTask("", dict(shell.files), workdir=shell.workdir), TaskRef("rehearsal", "t"), "rehearsal")
        specs = [RolloutSpec.of(task, "rehearsal", sample, run_seed=0) for sample in range(at_once)]
        return [rollout.session for rollout in await asyncio.gather(*map(engine.rollout, specs))]
