"""Runs to export: sessions drawn at random, with labels, verdicts and phases that need not fit one another."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attrs import evolve
from hypothesis import strategies as st

from longrein.model import LABELS, Label, Outcome, Reward, Rollout, SessionResult, Trajectory, Turn, TurnLabel, Verdict
from longrein.testing.exchanges import Exchange, capture, message, tool_call
from longrein.testing.runs import start_run

SYSTEM = message("system", "You are an agent.")
TOOLS = ({"type": "function", "function": {"name": "write", "parameters": {"type": "object", "properties": {}}}},)
VERDICTS = {"passed": Verdict("passed", 1.0), "failed": Verdict("failed", 0.25), "unscorable": Verdict.unscorable("llm_error")}


def rollout(exchanges: Sequence[Exchange], labels: Mapping[str, Label] | None = None, **values: Any) -> Rollout:
    """Return a rollout of a session; its turns are labelled train but for those in `labels`."""
    trace = capture(exchanges)
    turns = tuple(Turn(call, TurnLabel((labels or {}).get(call.id, "train"), "because"), "test") for call in trace.calls)
    session = SessionResult("s", "toy", Outcome("completed"), Trajectory(turns, trace.tools), sandbox={"agent_version": "1.2"})
    made = Rollout("run.toy.t.0", "run.toy.t", "toy", "made", "t", "0" * 64, 0, 7, session, VERDICTS["passed"], reward=Reward(1.0))
    return evolve(made, **values)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Exchange]:
    """Draw a session: its agent goes on, asks again, forgets its history or speaks beside it, with and without tools."""
    tools = TOOLS if draw(st.booleans()) else ()
    history, made = [SYSTEM, message("user", "Do it.")], list[Exchange]()
    for number in range(draw(st.integers(1, 5))):
        reply = tool_call("write", path=f"f{number % 2}") if tools and draw(st.booleans()) else message("assistant", f"Reply {number % 3}")
        finish = draw(st.sampled_from(["stop", "length"]))
        made.append(Exchange(f"c{number}", list(history), reply, tools, {"finish_reason": finish}))
        answer = (
            message("tool", f"result {number}", tool_call_id="call_1") if reply.get("tool_calls") else message("user", f"go on {number}")
        )
        match draw(st.sampled_from(["goes on", "goes on", "again", "forgets"])):
            case "goes on":
                history += [reply, answer]
            case "forgets":
                history = [SYSTEM, message("user", f"Summary {number}"), *history[2:][-2:]]
    return made


@st.composite
def rollouts(draw: st.DrawFn) -> list[Rollout]:
    """Draw the rollouts of a run."""
    made = []
    for number in range(draw(st.integers(1, 3))):
        session = draw(exchanges())
        labels = {exchange.id: draw(st.sampled_from(LABELS)) for exchange in session}
        status, phase = draw(st.sampled_from(list(VERDICTS))), draw(st.sampled_from(["run", "train", "eval:0"]))
        made.append(rollout(session, labels, id=f"r{number}", verdict=VERDICTS[status], phase=phase))
    return made


@contextmanager
def run_of(made: Sequence[Rollout]) -> Iterator[Path]:
    """Yield the folder of a run that made these rollouts."""
    with tempfile.TemporaryDirectory() as name:
        recorder = start_run(Path(name, "run"), ["toy"])
        for one in made:
            recorder.rollout(one)
        yield recorder.folder
