"""The conformance kit for agent adapters: `class TestMyAgent(AdapterContract): adapter = MyAgent`. No model is needed."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePosixPath
from typing import ClassVar

from attrs import evolve

from longrein import toolchain
from longrein.agent import AgentAdapter, LaunchPlan, Session
from longrein.model import PublicTask
from longrein.options import structure
from longrein.testing import moves
from longrein.testing.contract import Contract, not_applicable, require
from longrein.testing.moves import Asked
from longrein.testing.scenes import AWKWARD, LONG, MAX_CALLS, scenes, several
from longrein.testing.scripted import Reply
from longrein.testing.stage import ASIDE, Shown, play
from longrein.testing.touch import touched
from longrein.turns import build_rows

AT_ONCE = 3
"""Scenes that `longrein check` plays at once; most of their time is waiting."""


class AdapterContract(Contract):
    """What every adapter holds to, tried with about a dozen scripted sessions of the real agent in a real sandbox.

    An adapter gives `adapter`, perhaps `options`, and the moves below where the defaults do not fit: those know agents
    that offer native tools for files or a shell. A move returns None when the agent cannot be told that.
    """

    adapter: ClassVar[type[AgentAdapter]]
    sandbox: ClassVar[str] = "auto"
    patience_s: ClassVar[float] = 30.0
    """Longer than the agent ever stays silent by itself; hanging agents cost so much time."""
    never: ClassVar[threading.Event] = threading.Event()
    _played_scenes: ClassVar[dict[str, list[Shown] | Exception]]

    def __init_subclass__(cls) -> None:
        cls._played_scenes = {}

    def write(self, asked: Asked, files: Mapping[str, str]) -> Reply | None:
        """Return one reply that makes the agent write `files`, path below the workspace to text."""
        return moves.write(asked, files)

    def run(self, asked: Asked, command: str) -> Reply | None:
        """Return a reply that makes the agent run a shell command."""
        return moves.run(asked, command)

    def question(self, asked: Asked, text: str) -> Reply | None:
        """Return a reply by which the agent might ask the person at the terminal."""
        return moves.question(asked, text)

    def finish(self, asked: Asked) -> Reply | None:
        """Return the reply after which the agent ends."""
        return Reply("Done.")

    def aside(self, asked: Asked) -> bool:
        """Return whether a request is a side call (a title, a summary); it is answered with a few words, never with a move."""
        return self.adapter.capabilities.tools and not asked.tools

    # Plan

    def test_launch_is_pure(self) -> None:
        """The same session gives the same plan, and planning touches nothing."""
        agent = self._agent()
        plan = agent.launch(self._session())
        again, what = touched(lambda: agent.launch(self._session()))
        require(isinstance(plan, LaunchPlan), f"launch answered {plan!r:.200}; it takes a LaunchPlan")
        require(plan == again, f"two launches of one session differ: {plan} and {again}")
        require(not what, f"launch touched: {'; '.join(what)}")

    def test_starts_and_finishes(self) -> None:
        """The agent starts, does what the policy says and ends by itself with exit code 0."""
        for shown in self._shown("work"):
            require(shown.rollout.outcome.kind == "completed", f"a session ended as {shown.end}")
            passed = shown.rollout.verdict.status == "passed" or not self.adapter.capabilities.calls_model
            require(passed, f"the work was not done: {shown.rollout.verdict}; the session ended as {shown.end}")

    # Calls

    def test_the_prompt_arrives_unchanged(self) -> None:
        """The task's prompt reaches the policy character for character."""
        for shown in self._played("work"):
            require(shown.own, f"no call of the agent's own held the mark {shown.nonce} of its prompt; {shown.end}")
            said = shown.own[0].text
            require(shown.prompt in said, f"the prompt {shown.prompt!r} is not in what the agent asked: {_near(said, shown.nonce)!r}")

    def test_every_call_has_the_key(self) -> None:
        """Every model call arrives with the session's key, which stands on no command line."""
        played = self._played("work")
        for shown in played:
            require(not shown.strangers, f"{shown.strangers} calls came without a session's key")
            require(len(shown.rollout.trajectory), f"no call came with the session's key; {shown.end}")
        captured = sum(len(shown.rollout.trajectory) for shown in played)
        require(captured == played[0].n_requests, f"{played[0].n_requests} calls reached the policy, {captured} were captured")
        session = self._session()
        argv = self._agent().launch(session).argv
        require(not any(session.api_key in word for word in argv), "the key stands on the command line, where `ps` shows it")

    def test_awkward_arguments(self) -> None:
        """Quotes, newlines, nested JSON and every kind of character arrive in a file as the policy wrote them."""
        first = self._played("work")[0]
        self._same(first, "solution.py", AWKWARD)

    def test_long_replies(self) -> None:
        """A long reply arrives whole, as a stream where the agent asks for one."""
        self._same(self._played("work")[1], "solution.py", LONG)

    def test_several_calls_in_one_reply(self) -> None:
        """A reply that writes several files, one of them empty, has them all written."""
        second = self._played("work")[1]
        require(second.own, f"the agent made no call of its own; {second.end}")
        if self.write(second.own[0], several(self)) is None:
            not_applicable("this agent cannot be told to write several files in one reply")
        for name, text in several(self).items():
            self._same(second, name, text)

    def test_sessions_do_not_mix(self) -> None:
        """Of two sessions at once, each has its own calls only, and neither uses a fixed port."""
        first, second = self._played("work")
        for shown, other in ((first, second), (second, first)):
            calls = [shown.rollout.trajectory.messages(turn.call.id) for turn in shown.rollout.trajectory]
            require(calls, f"a session made no call; {shown.end}")
            require(other.nonce not in str(calls), "a session's calls hold the text of the other session's task")
        ports = set(first.report.get("ports", ())) & set(second.report.get("ports", ()))
        require(not ports, f"both sessions listened on port {', '.join(map(str, sorted(ports)))}; take a free one (port 0)")

    def test_works_without_network(self) -> None:
        """The agent works in a sandbox whose only network is the way to the policy."""
        shown = self._played("work")[0]
        if shown.rollout.session.sandbox.get("backend") == "supervisor":
            not_applicable("bubblewrap does not work here, and the supervisor shares the network")
        require(shown.rollout.outcome.kind == "completed", f"without a network a session ended as {shown.end}")

    def test_calls_nobody_else(self) -> None:
        """Through a proxy in its environment the agent asks for nothing but the policy."""
        (shown,) = self._played("proxy")
        called = list(shown.report.get("called", ()))
        own = [line for line in called if "127.0.0.1" in line or "localhost" in line]
        if own:
            not_applicable(f"the agent sends its model calls through a proxy too ({own[0]!r}), so others cannot be told from them")
        require(not called, f"the agent called: {'; '.join(called)}")
        require(shown.report, f"the session did not end by itself: {shown.end}")

    # Turns

    def test_own_calls_are_trained(self) -> None:
        """Every call of the agent's own work is labelled train, with a reason and who decided."""
        for shown in self._played("work"):
            own = shown.turns(aside=False)
            require(own, f"the agent made no call of its own; {shown.end}")
            for turn in own:
                said = f"{turn.label.label} ({turn.label.reason or 'no reason'}, decided by {turn.decided_by or 'nobody'})"
                require(turn.label.label == "train" and turn.label.reason and turn.decided_by, f"own call {turn.call.id} is {said}")

    def test_side_calls_are_aux(self) -> None:
        """Every side call is labelled aux, and no token of it is in a training row."""
        shown = self._played("work")
        sides = [turn for one in shown for turn in one.turns(aside=True)]
        for turn in sides:
            require(turn.label.label == "aux", f"side call {turn.call.id} is {turn.label.label} ({turn.label.reason})")
        for one in shown:
            rows = build_rows(one.rollout.trajectory, rollout_id="r", agent=self.adapter.name, token_budget=None).rows
            trained = [bytes(i for i, m in zip(row.input_ids, row.mask, strict=True) if m and i < 256) for row in rows]
            require(not any(ASIDE.encode() in text for text in trained), "tokens of a side call would be trained")
        if not sides:
            not_applicable("the agent made no side call")

    def test_actions(self) -> None:
        """Files that the agent wrote are listed as edits, commands as runs, and reading a session raises nothing."""
        for shown in self._played("work"):
            kinds = [action.kind for action in shown.rollout.actions]
            findings = "; ".join(f"{f.source} {f.message}" for f in shown.rollout.session.findings if "declares history" not in f.message)
            require(not findings, f"findings: {findings}")
            require("edit" in kinds, f"the agent wrote files, but its actions are {kinds}")
            if shown.scene.name == "first" and len(shown.own) > 1 and not shown.unable:  # the command was the second reply
                require("run" in kinds, f"the agent ran a command, but its actions are {kinds}")

    # Capabilities

    def test_declared_dialect(self) -> None:
        """The agent speaks the dialect that it declares, and calls a model if and only if it declares so."""
        declared = self.adapter.capabilities
        seen = {turn.call.dialect for shown in self._shown("work") for turn in shown.rollout.trajectory}
        if not declared.calls_model:
            require(not seen, "declares calls_model = False, but called the model")
        else:
            require(
                seen == {declared.dialect}, f"declares dialect {declared.dialect!r}, but spoke {', '.join(sorted(seen)) or 'to nobody'}"
            )

    def test_declared_tools(self) -> None:
        """The agent offers native tools if and only if it declares so."""
        shown = self._played("work")[0]
        offered = sorted({name for asked in shown.own for name in asked.tools})
        declared = self.adapter.capabilities.tools
        require(bool(offered) is declared, f"declares tools = {declared}, but its calls offer {', '.join(offered) or 'no tools'}")

    def test_declared_history(self) -> None:
        """The history goes on as declared: appended, rewritten, or without its thinking."""
        for shown in self._played("work"):
            findings = [f.message for f in shown.rollout.session.findings if "declares history" in f.message]
            require(not findings, "; ".join(findings))

    def test_declared_turn_cap(self) -> None:
        """An agent that declares to honour a turn cap ends by itself within it."""
        if not self.adapter.capabilities.honours_turn_cap:
            not_applicable("the adapter declares no turn cap")
        (shown,) = self._played("calls")
        refused = shown.rollout.outcome.kind == "budget_exceeded"
        require(not refused, f"declares honours_turn_cap, but asked for more than {MAX_CALLS} calls: {shown.end}")

    # Limits

    def test_call_budget(self) -> None:
        """An agent that goes on for ever is ended after its budget of calls."""
        (shown,) = self._played("calls")
        n = len([turn for turn in shown.rollout.trajectory if turn.call.sampled_ids])
        require(n <= MAX_CALLS, f"{n} calls were answered, the budget was {MAX_CALLS}")
        self._over_budget(shown, "completed" if self.adapter.capabilities.honours_turn_cap else "budget_exceeded")

    def test_token_budget(self) -> None:
        """An agent that goes on for ever is ended after its budget of tokens."""
        (shown,) = self._played("tokens")
        n = sum(len(turn.call.sampled_ids) for turn in shown.rollout.trajectory)
        budget = self._token_budget()
        require(n <= budget, f"{n} tokens were sampled, the budget was {budget}")
        self._over_budget(shown, "budget_exceeded")

    def test_idle_timeout(self) -> None:
        """An agent whose command hangs is ended at the idle limit, with every process."""
        (shown,) = self._played("idle")
        if shown.rollout.outcome.kind == "completed":
            not_applicable("this agent waits for nothing")
        require(shown.rollout.outcome.kind in ("stalled", "timeout"), f"ended as {shown.end}")
        require(not shown.survivors, f"left behind: {'; '.join(shown.survivors)}")

    def test_total_timeout(self) -> None:
        """An agent whose policy does not answer is ended at the time limit, with every process, and gets no grade."""
        (shown,) = self._played("timeout")
        require(shown.rollout.outcome.kind == "timeout", f"ended as {shown.end}")
        require(shown.rollout.verdict.status == "unscorable", f"a session without a reply was graded: {shown.rollout.verdict}")
        require(not shown.survivors, f"left behind: {'; '.join(shown.survivors)}")

    def test_questions(self) -> None:
        """A question to nobody does not hang the agent: standard input is closed, and it ends by itself."""
        (shown,) = self._played("question")
        require(shown.rollout.outcome.kind not in ("stalled", "timeout"), f"hung on a question: {shown.end}")

    def test_no_process_is_left(self) -> None:
        """When the agent has ended, so have the processes that it started."""
        for shown in self._shown("work"):
            left = [*shown.report.get("left", ()), *shown.survivors]
            require(not left, f"the agent ended and left: {'; '.join(left)}")
            require(shown.report, f"the session did not end by itself: {shown.end}")

    # Failures of the engine

    def test_engine_errors(self) -> None:
        """When the engine answers 500 the session cannot be scored, whatever the agent makes of it."""
        self._unscorable("failure")

    def test_cut_replies(self) -> None:
        """When replies break off the session cannot be scored, even if earlier work would pass."""
        (shown,) = self._played("cut")
        if not any(turn.call.error for turn in shown.rollout.trajectory):
            not_applicable("the agent ended after its first call")
        self._unscorable("cut")

    def test_unfinished_replies(self) -> None:
        """A reply without a finish reason counts as cut: the session cannot be scored."""
        self._unscorable("unfinished")

    # What the checks look at

    @classmethod
    def prepare(cls) -> None:
        """Play all scenes, some at once."""
        names = [name for name in scenes(cls()) if name != "tokens"] if cls.adapter.capabilities.calls_model else ["work"]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(cls()._remembered, names))

    def _shown(self, name: str) -> list[Shown]:
        made = self._remembered(name)
        if isinstance(made, Exception):
            raise made
        return made

    def _played(self, name: str) -> list[Shown]:
        """Return what sessions that need a model call showed."""
        if not self.adapter.capabilities.calls_model:
            not_applicable("this agent calls no model")
        return self._shown(name)

    def _remembered(self, name: str) -> list[Shown] | Exception:
        """Play a scene at most once for a class; all its checks look at the same sessions."""
        if name not in self._played_scenes:
            try:
                played = scenes(self)[name]
                if name == "tokens":
                    played = [evolve(scene, limits={**scene.limits, "max_tokens": self._token_budget()}) for scene in played]
                shown = play(played, self.adapter, options=self.options, sandbox=self.sandbox, aside=self.aside)
                self._played_scenes[name] = shown
            except Exception as error:
                self._played_scenes[name] = error
        return self._played_scenes[name]

    def _token_budget(self) -> int:
        """Return what two replies cost: the second is not cut, and the agent asks once more."""
        (shown,) = self._shown("calls")
        return sum(len(turn.call.sampled_ids) for turn in shown.turns(aside=False)[:2]) or 1

    def _agent(self) -> AgentAdapter:
        return self.adapter(structure(self.adapter.Options, self.options, where=f"[agents.{self.adapter.name}]"))

    def _session(self) -> Session:
        spec = self.adapter.toolchain
        return Session(
            task=PublicTask("do it", check="check.py"),
            model="m",
            base_url="http://127.0.0.1:1",
            api_key="lr-the-key-of-this-session",
            workdir=PurePosixPath("/work"),
            home=PurePosixPath("/home/agent"),
            python=PurePosixPath("/usr/bin/python3"),
            toolchain=toolchain.find(self.adapter.name, spec) if spec else None,
            solution={"solution.py": ""} if self.adapter.capabilities.needs_solution else None,
            max_turns=3 if self.adapter.capabilities.honours_turn_cap else None,
            max_model_len=100_000,
        )

    def _same(self, shown: Shown, name: str, text: str) -> None:
        found = shown.rollout.session.workspace.get(name)
        require(found is not None, f"{name} was not written; the session ended as {shown.end}")
        got = (found or b"").decode("utf-8", "replace")
        at = next((i for i, (a, b) in enumerate(zip(got, text, strict=False)) if a != b), min(len(got), len(text)))
        require(got == text, f"{name} differs at character {at}: wanted {text[at : at + 40]!r}, got {got[at : at + 40]!r}")

    def _over_budget(self, shown: Shown, expected: str) -> None:
        if shown.rollout.outcome.kind == "completed" and expected != "completed":
            not_applicable(f"the agent ended by itself after {len(shown.rollout.trajectory)} calls")
        require(shown.rollout.outcome.kind == expected, f"ended as {shown.end}")

    def _unscorable(self, name: str) -> None:
        (shown,) = self._played(name)
        rollout = shown.rollout
        require(
            rollout.verdict.status == "unscorable", f"the engine failed, but the session was graded {rollout.verdict.status}: {shown.end}"
        )
        require(rollout.outcome.kind == "llm_error", f"ended as {shown.end}")
        require(not shown.survivors, f"left behind: {'; '.join(shown.survivors)}")


def _near(text: str, mark: str) -> str:
    at = text.find(mark)
    return text[max(0, at - 20) : at + 200]
