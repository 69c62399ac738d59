"""Plays scripted sessions of one agent with the real engine, capture and sandbox, and keeps what they showed."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from attrs import define, evolve, field, frozen

from longrein.agent import AgentAdapter, LaunchPlan, Session
from longrein.config import from_mapping
from longrein.model import PublicTask, Rollout, Task, TaskRef, Turn, Verdict
from longrein.plugins import PluginHost
from longrein.rollout.engine import Engine
from longrein.rollout.spec import RolloutSpec
from longrein.testing.moves import Asked
from longrein.testing.scripted import Reply, ScriptedServer
from longrein.verifier import TaskSet, Verifier

WATCH = Path(__file__).with_name("watch.py")
REPORT = ".longrein-rehearsal.json"
MARK = "LONGREIN_REHEARSAL"
"""Variable by which every process of a session is found again."""
ASIDE = "A few words beside the work"
"""What the policy answers to side calls, and to nothing else."""
CHECK = "check.py"

Step = Callable[[Asked], Reply | None]
"""Makes the reply to one of the agent's own calls; None when the agent cannot be told that."""


@frozen
class Scene:
    """One scripted session."""

    name: str
    steps: Sequence[Step]
    """Replies to the agent's own calls, in order; the last one again and again."""
    wanted: Mapping[str, str] = field(factory=dict)
    """The files that a passing workspace holds."""
    limits: Mapping[str, Any] = field(factory=dict)
    check: str = "print('ok')"
    """Source of the script that the agent may run as its test command."""
    proxy: bool = False
    """Give the agent a proxy that refuses and notes what is asked for."""


@frozen
class Shown:
    """What a session showed."""

    scene: Scene
    nonce: str
    rollout: Rollout
    prompt: str
    own: Sequence[Asked]
    """The agent's own calls that the policy answered, side calls left out."""
    n_requests: int
    """Calls that reached the policy, of all sessions played together."""
    strangers: int
    """Calls without the session's key."""
    unable: bool
    """A step could not be said to this agent."""
    report: Mapping[str, Any]
    """What `watch.py` wrote; empty when the session was ended from outside."""
    survivors: Sequence[str]

    def turns(self, *, aside: bool) -> list[Turn]:
        """Return the answered turns: side calls, or the agent's own."""
        answered = (turn for turn in self.rollout.trajectory if turn.call.error is None)
        return [turn for turn in answered if (ASIDE in str(turn.call.reply.get("content"))) is aside]

    @property
    def end(self) -> str:
        """How it ended, for messages."""
        outcome = self.rollout.outcome
        lines = [line for line in (self.rollout.session.stderr or self.rollout.session.stdout).splitlines() if line.strip()]
        said = f"; it last said: {lines[-1][:300]}" if lines else ""
        return f"{outcome.kind} ({outcome.reason or 'no reason'}) after {len(self.rollout.trajectory)} calls{said}"


@define
class Player:
    """Says a scene's replies to its session."""

    scene: Scene
    nonce: str = field(factory=lambda: f"rehearsal-{secrets.token_hex(6)}")
    session: Session | None = None
    own: list[Asked] = field(factory=list)
    place: int = 0
    unable: bool = False

    @property
    def prompt(self) -> str:
        """A task whose text is easily mangled on a command line."""
        return (
            f'-v {self.nonce}: write  solution.py, "say" 5 1e3 -- --title "x y" \'q\' %s\n'
            '- it costs $HOME and `ok`; "ende" é 漢 🐎 \\n {"a": [1]} <b>'
        )

    def answer(self, body: Mapping[str, Any]) -> Reply:
        """Return the next reply, leaving out steps that the agent cannot be told."""
        asked = Asked(body, self.session.workdir if self.session else PurePosixPath("/work"))
        self.own.append(asked)
        while True:
            step = self.scene.steps[min(self.place, len(self.scene.steps) - 1)]
            self.place += 1
            reply = step(asked)
            if reply is not None:
                return reply
            self.unable = True
            if self.place >= len(self.scene.steps):
                return Reply("Done.")


def play(
    scenes: Sequence[Scene], adapter: type[AgentAdapter], *, options: Mapping[str, Any], sandbox: str, aside: Callable[[Asked], bool]
) -> list[Shown]:
    """Play scenes at once, in one engine with the limits of the first.

    Args:
        scenes: what the policy says in each session.
        adapter: the agent.
        options: its options, as in a config.
        sandbox: the backend.
        aside: tells side calls from the agent's own.
    """
    players = [Player(scene) for scene in scenes]

    def script(body: dict[str, Any]) -> Reply:
        asked = Asked(body, PurePosixPath("/work"))
        player = next((player for player in players if player.nonce in asked.text), None)
        return Reply(ASIDE) if player is None or aside(asked) else player.answer(body)

    with ScriptedServer(script) as server:
        return asyncio.run(_play(players, adapter, server, options=options, sandbox=sandbox))


async def _play(
    players: Sequence[Player], adapter: type[AgentAdapter], server: ScriptedServer, *, options: Mapping[str, Any], sandbox: str
) -> list[Shown]:
    limits = {"max_tokens": 1_000_000, "max_reply_tokens": 200_000, **players[0].scene.limits, "sessions": len(players)}
    config = from_mapping(
        {"taskset": "rehearsal", "agents": {adapter.name: dict(options)}, "limits": limits, "sandbox": {"backend": sandbox}}
    )
    wanted = wanting({player.nonce: player.scene.wanted for player in players})
    host = PluginHost.load().with_classes({("agent", adapter.name): _watched(adapter, players), **wanted})
    async with Engine(config, host, endpoint=server.endpoint) as engine:
        specs = [RolloutSpec.of(_task(player), adapter.name, 0, run_seed=0) for player in players]
        rollouts = await asyncio.gather(*map(engine.rollout, specs))
        survivors = [list(_survivors(player.nonce)) for player in players]
        strangers = engine.strangers
    return [
        Shown(
            scene=player.scene,
            nonce=player.nonce,
            rollout=rollout,
            prompt=player.prompt,
            own=player.own,
            n_requests=len(server.requests),
            strangers=strangers,
            unable=player.unable,
            report=json.loads(rollout.session.workspace.get(REPORT, b"{}")),
            survivors=left,
        )
        for player, rollout, left in zip(players, rollouts, survivors, strict=True)
    ]


def _task(player: Player) -> Task:
    public = PublicTask(player.prompt, {CHECK: player.scene.check}, check=CHECK)
    return Task(player.nonce, player.nonce, public, TaskRef("rehearsal", player.nonce), "rehearsal")


def wanting(files: Mapping[str, Mapping[str, str]]) -> dict[tuple[str, str], type]:
    """Return a task set and a verifier for a host: a workspace passes that holds a task's files, byte for byte.

    Args:
        files: task id to path and text.
    """

    class Rehearsal(TaskSet):
        name = "rehearsal"

        def tasks(self) -> Iterator[Task]:
            yield from ()

        def hidden(self, task_id: str) -> Mapping[str, str]:
            return files[task_id]

        def solution(self, task_id: str) -> Mapping[str, str]:
            return files[task_id]

    class Written(Verifier):
        name = "rehearsal"

        def grade(self, hidden: Mapping[str, str], workspace: Path) -> Verdict:
            right = [(workspace / name).is_file() and (workspace / name).read_bytes() == text.encode() for name, text in hidden.items()]
            return Verdict("passed" if all(right) else "failed", sum(right) / max(1, len(right)))

    return {("taskset", "rehearsal"): Rehearsal, ("verifier", "rehearsal"): Written}


def _watched(adapter: type[AgentAdapter], players: Sequence[Player]) -> type[AgentAdapter]:
    """Return the adapter with its program started below `watch.py`."""

    def launch(self: AgentAdapter, session: Session) -> LaunchPlan:
        plan = adapter.launch(self, session)
        player = next(player for player in players if player.nonce in session.task.prompt)
        player.session = session
        watch = json.dumps({"report": f"{session.workdir}/{REPORT}", "proxy": player.scene.proxy})
        argv = [str(session.python), "-I", "-S", "-c", WATCH.read_text(encoding="utf-8"), watch, *plan.argv]
        return evolve(plan, argv=argv, env={**plan.env, MARK: player.nonce})

    made: type[AgentAdapter] = type(adapter.__name__, (adapter,), {"launch": launch})
    return made


def _survivors(nonce: str) -> Iterator[str]:
    """Yield the command lines of the processes that a session left."""
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if nonce.encode() in path.read_bytes():
                yield path.with_name("cmdline").read_bytes()[:200].replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # ended meanwhile, or another user's
