"""One session: a sandbox, a capture key and an agent process, watched until every process of it is dead."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import asdict, evolve

from longrein.agent import AgentAdapter, McpServer, Session
from longrein.capture.endpoint import PolicyEndpoint
from longrein.config import Config
from longrein.errors import EnvironmentFailed, SandboxError
from longrein.model import Finding, Outcome, SessionResult, Trajectory, Turn, TurnLabel
from longrein.rollout.lease import Lease
from longrein.rollout.outcome import Ending, decide_outcome
from longrein.rollout.spec import SessionSpec
from longrein.sandbox import ProcessResult, RunningSession, Sandbox, SandboxPolicy
from longrein.toolchain.spec import InstalledToolchain
from longrein.tools.server import ToolServer
from longrein.turns import history_findings, label_calls

if TYPE_CHECKING:
    from longrein.capture.server import CaptureServer
    from longrein.capture.session import CaptureSession
    from longrein.plugins import PluginHost

BRIDGE = Path(__file__).parents[1] / "tools" / "bridge.py"


class SessionRunner:
    """Runs sessions on this machine; `limits.sessions` at once.

    Args:
        config: limits, turns and policy sections are used.
        host: decides launches and labels.
        adapters: agent name to adapter.
        toolchains: agent name to its installed toolchain.
        capture: the running capture server.
        sandbox: the backend.
        endpoint: the policy server behind capture.
        started: called when a session has its slot.
    """

    def __init__(
        self,
        config: Config,
        host: PluginHost,
        *,
        adapters: Mapping[str, AgentAdapter],
        toolchains: Mapping[str, InstalledToolchain | None],
        capture: CaptureServer,
        sandbox: Sandbox,
        endpoint: PolicyEndpoint,
        started: Callable[[SessionSpec], None] | None = None,
    ) -> None:
        self._config, self._host, self._adapters, self._toolchains = config, host, adapters, toolchains
        self._capture, self._sandbox, self._endpoint, self._started = capture, sandbox, endpoint, started
        self._slots: asyncio.Queue[int] = asyncio.Queue()
        self._policy = asdict(SandboxPolicy.of(config, type(sandbox)))
        for slot in range(config.limits.sessions):
            self._slots.put_nowait(slot)

    async def run(self, spec: SessionSpec, lease: Lease | None = None) -> SessionResult:
        """Run one session to its end, in an environment where there is one; trouble is an outcome, never an exception."""
        slot = await self._slots.get()
        try:
            if self._started:
                self._started(spec)
            return await self._run_in(slot, spec, lease)
        finally:
            self._slots.put_nowait(slot)

    async def _run_in(self, slot: int, spec: SessionSpec, lease: Lease | None) -> SessionResult:
        limits, adapter, findings = self._config.limits, self._adapters[spec.agent], list[Finding]()
        capture = self._capture.open_session(
            max_calls=limits.max_calls, max_tokens=limits.max_tokens, seed=spec.seed, max_staleness=spec.max_staleness
        )
        started = time.monotonic()
        tools: ToolServer | None = None
        record: dict[str, Any] = {"policy": self._policy, "agent_version": self._version(spec.agent)}
        try:
            if lease:
                environment = await lease.open()
                tools = ToolServer(environment, capture.key)
                spec = evolve(spec, task=evolve(spec.task, prompt=spec.task.prompt + environment.observation))
                started = time.monotonic()
            session = self._session(spec, slot, capture.key, tools)
            plan = evolve(self._host.launch(adapter, session, findings), workdir_too=self._workdir_too(spec, session))
            if session.mcp:
                plan = evolve(plan, files={**plan.files, session.mcp.argv[1]: BRIDGE.read_text(encoding="utf-8")})
            record["start_state"] = start_state({**spec.task.files, **plan.files}, hide=capture.key)
            async with self._door(capture, slot), self._tools_door(tools, slot):
                running = await self._sandbox.start(slot, plan, files=spec.task.files, toolchain=session.toolchain)
                process = await self._watch(running, capture, tools, started)
                capture.close()
        except Exception as error:  # whatever escapes here is ours or a plugin's, never the policy's doing
            capture.close()
            what = str(error) if isinstance(error, SandboxError | EnvironmentFailed) else f"{type(error).__name__}: {error}"
            outcome = Outcome("environment_error" if isinstance(error, EnvironmentFailed) else "sandbox_error", what)
            return SessionResult(spec.id, spec.agent, outcome, Trajectory(), sandbox=record, findings=tuple(findings))
        process = evolve(process, record={**process.record, **record})
        trajectory = self._label(spec, adapter, capture, findings)
        result = self._result(spec, adapter, capture, process, trajectory, findings, time.monotonic() - started)
        if tools and tools.failure is not None:
            return evolve(result, outcome=Outcome("environment_error", tools.failure, ended=result.outcome.kind))
        return result

    def _door(self, capture: CaptureSession, slot: int) -> AbstractAsyncContextManager[None]:
        """Return what answers the session's requests while it runs: a socket of its own, or the port that all share."""
        if self._sandbox.shares_network:
            return nullcontext()
        return self._capture.serve(capture, self._sandbox.capture_socket(slot))

    def _tools_door(self, tools: ToolServer | None, slot: int) -> AbstractAsyncContextManager[None]:
        return tools.serve(self._sandbox.tools_socket(slot)) if tools else nullcontext()

    def _session(self, spec: SessionSpec, slot: int, key: str, tools: ToolServer | None) -> Session:
        place = self._sandbox.place(slot)
        mcp: McpServer | None = None
        if tools and self._adapters[spec.agent].capabilities.mcp:
            if place.tools is None:
                raise SandboxError(f"sandbox {self._sandbox.name!r} has no way to the tools of an environment; take another backend")
            mcp = McpServer((str(place.python), f"{place.home}/.longrein/tools.py", str(place.tools)), {"LONGREIN_TOOLS_KEY": key})
        return Session(
            task=spec.task,
            model=self._endpoint.model,
            max_model_len=self._endpoint.max_model_len,
            base_url=place.base_url,
            api_key=key,
            workdir=place.workdir,
            home=place.home,
            python=place.python,
            toolchain=self._toolchains[spec.agent],
            solution=spec.solution,
            mcp=mcp,
            max_turns=self._config.limits.max_calls if self._adapters[spec.agent].capabilities.honours_turn_cap else None,
        )

    def _workdir_too(self, spec: SessionSpec, session: Session) -> str | None:
        """Return the other path at which the task has the working folder, where there is one."""
        asked = spec.task.workdir
        if asked is None or asked == str(session.workdir):
            return None
        if not self._sandbox.shows_workdir_twice:
            raise SandboxError(
                f"the task names its working folder {asked}, where the sandbox {self._sandbox.name!r} cannot show it; "
                "bwrap and docker can, see `longrein doctor`"
            )
        return asked

    async def _watch(self, running: RunningSession, capture: CaptureSession, tools: ToolServer | None, started: float) -> ProcessResult:
        """Wait for the process, and end it when a limit is reached."""
        ended = asyncio.ensure_future(running.wait())
        over = asyncio.ensure_future(capture.over.wait())
        broken = asyncio.ensure_future((tools.over if tools else asyncio.Event()).wait())
        try:
            while not ended.done():
                deadline, why = self._next_deadline(running, capture, tools, started)
                left_s = max(0.0, deadline - time.monotonic())
                await asyncio.wait({ended, over, broken}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                if ended.done():
                    break
                if over.done() or broken.done():
                    running.stop("environment" if not over.done() else "stale" if capture.stale else "budget")
                    break
                deadline, why = self._next_deadline(running, capture, tools, started)
                if time.monotonic() >= deadline:
                    running.stop(why)
                    break
            return await ended
        except asyncio.CancelledError:
            running.stop("cancelled")
            await asyncio.shield(ended)
            raise
        finally:
            over.cancel()
            broken.cancel()

    def _next_deadline(
        self, running: RunningSession, capture: CaptureSession, tools: ToolServer | None, started: float
    ) -> tuple[float, str]:
        limits = self._config.limits
        if capture.pending:
            quiet = (capture.last_activity + limits.reply_s, "reply_timeout")
        elif tools and tools.pending:  # the environment works, and bounds its calls itself; look again later
            quiet = (time.monotonic() + limits.idle_s, "stalled")
        else:
            acted = tools.last_activity if tools else started
            quiet = (max(started, capture.last_activity, running.last_output(), acted) + limits.idle_s, "stalled")
        return min((started + limits.timeout_s, "timeout"), quiet)

    def _label(self, spec: SessionSpec, adapter: AgentAdapter, capture: CaptureSession, findings: list[Finding]) -> Trajectory:
        def decide(turn: Turn, trajectory: Trajectory, proposal: TurnLabel) -> tuple[TurnLabel, str]:
            return self._host.classify(adapter, turn, trajectory, proposal, findings)

        trajectory = label_calls(capture.calls, capture.tools, task=spec.task, decide=decide, options=self._config.turns)
        findings.extend(history_findings(trajectory, adapter))
        return trajectory

    def _result(
        self,
        spec: SessionSpec,
        adapter: AgentAdapter,
        capture: CaptureSession,
        process: ProcessResult,
        trajectory: Trajectory,
        findings: list[Finding],
        wall_s: float,
    ) -> SessionResult:
        stdout, stderr = (data.decode("utf-8", "replace") for data in (process.stdout, process.stderr))
        outcome = decide_outcome(
            Ending(
                ended_by=process.ended_by,
                exit_code=process.exit_code,
                calls=capture.calls,
                calls_model=adapter.capabilities.calls_model,
                budget_stop=capture.budget_stop,
                stale=capture.stale if process.ended_by == "stale" else None,
                context_overflow=capture.context_overflow,
                needs_tokens=self._endpoint.level == "tokens",
                stderr_tail=stderr or stdout,
            )
        )
        return SessionResult(
            session_id=spec.id,
            agent=spec.agent,
            outcome=outcome,
            trajectory=trajectory,
            exit_code=process.exit_code,
            stdout=stdout,
            stderr=stderr,
            workspace=process.workspace,
            wall_s=wall_s,
            sandbox=process.record,
            findings=tuple(findings),
        )

    def _version(self, agent: str) -> str | None:
        toolchain = self._toolchains[agent]
        return toolchain.version if toolchain else None


def start_state(files: Mapping[str, str], *, hide: str) -> str:
    """Return a hash of all files that a session starts with: folders are empty but for them.

    Args:
        files: path to text.
        hide: the session's key, which stands in some agents' configs and differs in each session.
    """
    digest = hashlib.sha256()
    for path, text in sorted(files.items()):
        for part in (path, text.replace(hide, "KEY")):
            data = part.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "big") + data)
    return f"sha256:{digest.hexdigest()}"
