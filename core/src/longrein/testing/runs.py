"""Run folders made without a run: rollouts of the size and shape that real agents leave, written through the recorder."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from longrein.config import from_mapping
from longrein.model import (
    Action,
    CaseResult,
    ModelCall,
    Outcome,
    PublicTask,
    Reward,
    Rollout,
    SessionResult,
    Task,
    TaskRef,
    Trajectory,
    Turn,
    TurnLabel,
    Usage,
    Verdict,
)
from longrein.rollout.record import RunRecorder

WORDS = ("the", "a", "file", "line", "value", "function", "return", "read", "write", "print", "input", "output", "number", "list")
TOOLS = ("bash", "edit", "glob", "grep", "read", "write", "task", "todowrite", "webfetch")


@frozen
class Shape:
    """How large the sessions of an agent are."""

    calls: int
    system_chars: int
    tool_chars: int
    """Of each tool's manifest; 0 for an agent without tools."""
    prompt_tokens: int
    """Of the first call; each later one adds what the agent and the policy said."""


LARGE = Shape(calls=3, system_chars=29_000, tool_chars=2_000, prompt_tokens=8_000)
"""As opencode's sessions with a real tokenizer."""
TINY = Shape(calls=2, system_chars=300, tool_chars=0, prompt_tokens=40)
SMALL = Shape(calls=2, system_chars=4_000, tool_chars=0, prompt_tokens=1_200)
"""As Aider's."""


def make_task(number: int, *, taskset: str = "made") -> Task:
    """Return a task: print the sum of two numbers, in words that differ from task to task."""
    rng = random.Random(number)
    prompt = f"Task {number}. Read two integers and print their sum.\n\n{_prose(rng, 700)}"
    files = {"solution.py": "", "examples/1.in": f"1 {number}\n", "examples/1.out": f"{number + 1}\n", "README.md": _prose(rng, 300)}
    task_id = f"sum-{number:04d}"
    return Task(task_id, f"{number:064x}", PublicTask(prompt, files), TaskRef(taskset, task_id), "made")


def make_rollout(task: Task, agent: str, sample: int, *, shape: Shape = SMALL, phase: str = "run", group_id: str = "") -> Rollout:
    """Return a rollout of `task`; the same arguments give the same rollout."""
    rng = random.Random(f"{task.id}|{agent}|{sample}|{phase}")
    passed = rng.random() < (0.3 if agent < "f" else 0.55)
    group = group_id or f"{phase}.{agent}.{task.id}"
    a_plus_b = "a, b = map(int, input().split())\nprint(a + b)\n" if passed else "a, b = map(int, input().split())\nprint(a - b)\n"
    trajectory = _trajectory(rng, task, agent, shape, a_plus_b)
    cases = tuple(CaseResult("passed" if passed or rng.random() < 0.2 else "wrong_answer", cpu_s=0.02, wall_s=0.03) for _ in range(8))
    session = SessionResult(
        session_id=f"{group}.{sample}",
        agent=agent,
        outcome=Outcome("completed"),
        trajectory=trajectory,
        exit_code=0,
        stdout=_prose(rng, 3_000),
        workspace={**{path: text.encode() for path, text in task.public.files.items()}, "solution.py": a_plus_b.encode()},
        wall_s=trajectory.turns[-1].call.ended_s + 1.0,
        sandbox={"backend": "bubblewrap"},
    )
    verdict = Verdict("passed" if passed else "failed", float(passed), "" if passed else "1 of 8 cases failed", cases)
    return Rollout(
        id=f"{group}.{sample}",
        group_id=group,
        agent=agent,
        taskset=task.taskset,
        task_id=task.id,
        task_digest=task.digest,
        sample=sample,
        seed=rng.randrange(1 << 31),
        session=session,
        verdict=verdict,
        actions=(Action("edit", "write", "solution.py"), Action("run", "bash", "python3 examples/check.py")),
        reward=Reward(float(passed), {"passed": float(passed)}, decided_by="reward:binary"),
        phase=phase,
    )


def unscorable(rollout: Rollout, kind: Any = "llm_error", reason: str = "the engine answered 500") -> Rollout:
    """Return a rollout as one that could not be scored."""
    session = evolve(rollout.session, outcome=Outcome(kind, reason))
    return evolve(rollout, session=session, verdict=Verdict.unscorable(f"{kind}: {reason}"), reward=Reward(None))


def write_run(
    folder: Path,
    agents: Mapping[str, Shape],
    *,
    tasks: int,
    samples: int,
    change: Callable[[Rollout], Rollout] = lambda rollout: rollout,
) -> Path:
    """Write the folder of a finished run and return it.

    Args:
        folder: made when missing.
        agents: name to the size of their sessions.
        tasks: how many.
        samples: rollouts of each task and agent.
        change: makes each rollout what a test needs.
    """
    recorder = start_run(folder, agents)
    for number in range(tasks):
        task = make_task(number)
        recorder.task(task)
        for sample in range(samples):
            for agent, shape in agents.items():
                recorder.rollout(change(make_rollout(task, agent, sample, shape=shape)))
    return folder


def start_run(folder: Path, agents: Sequence[str] | Mapping[str, Any]) -> RunRecorder:
    """Return the recorder of a run that has just begun."""
    recorder = RunRecorder(folder)
    recorder.start(
        from_mapping({"taskset": "made", "agents": {name: {} for name in agents}, "policy": {"url": "http://h/v1", "model": "m"}})
    )
    return recorder


def _trajectory(rng: random.Random, task: Task, agent: str, shape: Shape, program: str) -> Trajectory:
    system, tools, shared = _fixed(agent, shape)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": task.public.prompt}]
    turns = tuple(_turns(rng, task, shape, messages, shared, program, bool(tools)))
    return Trajectory(turns, {"made": tools} if tools else {})


@cache
def _fixed(agent: str, shape: Shape) -> tuple[str, list[dict[str, Any]], list[int]]:
    """Return what every session of an agent begins with: system prompt, tools, and nine tenths of the first prompt's tokens."""
    rng = random.Random(agent)
    system = _prose(rng, shape.system_chars)
    names = TOOLS if shape.tool_chars else ()
    tools = [{"type": "function", "function": {"name": name, "description": _prose(rng, shape.tool_chars)}} for name in names]
    return system, tools, [rng.randrange(50_000) for _ in range(shape.prompt_tokens * 9 // 10)]


def _turns(
    rng: random.Random, task: Task, shape: Shape, messages: list[dict[str, Any]], shared: list[int], program: str, tools: bool
) -> Iterator[Turn]:
    statement = random.Random(task.id)
    context = shared + [statement.randrange(50_000) for _ in range(shape.prompt_tokens - len(shared))]
    n_messages, prompt_len = 0, 0
    for index in range(shape.calls):
        reply = _reply(index, rng, program, tools)
        prompt_len += len(context)
        call = _call(rng, index, context, prompt_len, reply)
        call = evolve(call, messages_kept=n_messages, messages=tuple(messages), tools_key="made" if tools else None)
        side = tools and index == 0
        yield Turn(call, TurnLabel("aux", "a title") if side else TurnLabel("train", "agent conversation; it went on"), "structure")
        n_messages += len(messages)
        prompt_len += len(call.sampled_ids)
        messages = [dict(reply), {"role": "tool" if tools else "user", "content": _prose(rng, 400)}]
        context = [rng.randrange(50_000) for _ in range(120)]


def _call(rng: random.Random, index: int, context: list[int], prompt_len: int, reply: dict[str, Any]) -> ModelCall:
    sampled = [rng.randrange(50_000) for _ in range(rng.randint(40, 220))]
    before = f"c{index - 1}" if index else None
    return ModelCall(
        id=f"c{index}",
        index=index,
        parent_id=before,
        context_ids=context,
        prompt_len=prompt_len,
        sampled_ids=sampled,
        logprobs=[-rng.expovariate(2.0) for _ in sampled],
        usage=Usage(prompt_len, len(sampled)),
        messages_base=before,
        reply=reply,
        finish_reason="tool_calls" if "tool_calls" in reply else "stop",
        version_first=1,
        version_last=1,
        started_s=2.0 * index + 1.0,
        ended_s=2.0 * index + 2.0,
    )


def _reply(index: int, rng: random.Random, program: str, tools: bool) -> dict[str, Any]:
    if not tools:
        return {"role": "assistant", "content": f"{_prose(rng, 200)}\n\nsolution.py\n```\n{program}```"}
    call = {"name": "write", "arguments": '{"filePath": "solution.py", "content": ' + json.dumps(program) + "}"}
    return {"role": "assistant", "content": _prose(rng, 200), "tool_calls": [{"id": f"call_{index}", "type": "function", "function": call}]}


def _prose(rng: random.Random, n_chars: int) -> str:
    words: list[str] = []
    length = 0
    while length < n_chars:
        word = rng.choice(WORDS) if rng.random() < 0.7 else f"{rng.randrange(1 << 24):x}"
        words.append(word + ("\n" if rng.random() < 0.08 else " "))
        length += len(words[-1])
    return "".join(words)[:n_chars]
