"""How well the practice policy speaks its agents' formats, and how fast GRPO teaches it, both without running an agent.

    python bench/practice.py [--agents opencode aider] [--sessions 100] [--steps 20] [--seeds 3] [--permute]

The first part samples whole sessions turn by turn, with what the agent would have answered in between. The second part is a
simulation of the main job: groups, advantages, a clipped loss and stale samples, with the candidate programs known by their text.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import frozen

from longrein.plugins import PluginHost
from longrein.practice import build_policy
from longrein.practice.exercises import Exercise
from longrein.practice.record import Recording, record
from longrein.practice.tasks import PracticeOptions, PracticeTasks
from longrein.practice.transcripts import reply_text, session_of
from longrein.serve.loading import load_policy


@frozen
class Sampled:
    """A first reply and what it means for the exercise."""

    prompt: Sequence[int]
    ids: Sequence[int]
    word: str | None
    """The candidate that the reply holds, or None when it is not well-formed."""


class Bench:
    """A policy, its template and what the agents send."""

    def __init__(self, folder: Path, recordings: Sequence[Recording]) -> None:
        policy = load_policy(folder, dtype="float32", max_model_len=None, threads=torch.get_num_threads())
        self.model, self.template, self.recordings = policy.model, policy.template, recordings

    def prompt(self, recording: Recording, exercise: Exercise, turn: int = 0, word: str | None = None) -> list[int]:
        """Return the prompt of a turn, after the candidate `word` where there was one."""
        exchange = session_of(recording, exercise, word or exercise.word)[turn]
        return self.template.encode(self.template.render(list(exchange.messages), exchange.tools))

    @torch.no_grad()
    def sample(self, model: Any, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
        """Return one sampled reply for each prompt, end token included."""
        tokenizer, longest = self.template.tokenizer, max(map(len, prompts))
        ids = torch.tensor([[tokenizer.pad_token_id] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
        mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
        out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=96, do_sample=True, temperature=1.0, top_k=0, top_p=1.0)
        end = tokenizer.eos_token_id
        return [row[: row.index(end) + 1] if end in row else row for row in out[:, longest:].tolist()]

    def first_replies(self, model: Any, recording: Recording, exercises: Sequence[Exercise]) -> list[Sampled]:
        """Sample a first reply for each exercise."""
        prompts = [self.prompt(recording, exercise) for exercise in exercises]
        replies = self.sample(model, prompts)
        texts = [self.template.tokenizer.decode(reply) for reply in replies]
        return [
            Sampled(prompt, reply, next((w for w in e.candidates if text == self._wanted(recording, e, w, 0)), None))
            for prompt, reply, text, e in zip(prompts, replies, texts, exercises, strict=True)
        ]

    def _wanted(self, recording: Recording, exercise: Exercise, word: str, turn: int) -> str:
        return reply_text(self.template, session_of(recording, exercise, word)[turn].reply)

    def sessions(self, recording: Recording, exercises: Sequence[Exercise]) -> tuple[float, float]:
        """Return the shares of whole sessions that are well-formed, and of those whose program is right."""
        well = passed = 0
        for exercise, first in zip(exercises, self.first_replies(self.model, recording, exercises), strict=True):
            if first.word is None:
                continue
            turns = range(1, len(session_of(recording, exercise, first.word)))
            replies = self.sample(self.model, [self.prompt(recording, exercise, t, first.word) for t in turns]) if turns else []
            texts = [self.template.tokenizer.decode(reply) for reply in replies]
            well += all(text == self._wanted(recording, exercise, first.word, t) for t, text in zip(turns, texts, strict=True))
            passed += first.word == exercise.word
        return well / len(exercises), passed / len(exercises)

    def pass_rate(self, model: Any, exercises: Sequence[Exercise], samples: int) -> float:
        """Return the pass rate over all agents, judged by first replies."""
        cells = [(r, [e for e in exercises for _ in range(samples)]) for r in self.recordings]
        results = [s.word == e.word for r, es in cells for s, e in zip(self.first_replies(model, r, es), es, strict=True)]
        return sum(results) / len(results)


@frozen
class Trial:
    """Settings of a simulated training."""

    steps: int
    group_size: int
    rollouts: int
    learning_rate: float
    lag: int
    n_tasks: int
    permute: bool


def simulate(bench: Bench, trial: Trial, *, seed: int) -> Iterator[tuple[int, Any]]:
    """Train a copy of the policy and yield (step, model) after each step."""
    torch.manual_seed(seed)
    rng, model = random.Random(seed), copy.deepcopy(bench.model).requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=trial.learning_rate, weight_decay=0.0)
    tasks = practice("train", trial.n_tasks, seed)
    waiting = []
    for step in range(trial.steps + trial.lag):
        batch = []
        for group in range(trial.rollouts // trial.group_size):
            at = step * (trial.rollouts // trial.group_size) + group
            recording, exercise = bench.recordings[at % len(bench.recordings)], tasks[(at // len(bench.recordings)) % len(tasks)]
            replies = bench.first_replies(model, recording, [exercise] * trial.group_size)
            rewards = [float(reply.word == exercise.word) for reply in replies]
            if trial.permute:
                rng.shuffle(rewards)
            mean = sum(rewards) / len(rewards)
            if min(rewards) != max(rewards):
                spread = torch.tensor(rewards).std().item()
                old = logprobs(model, replies).detach().split([len(reply.ids) for reply in replies])
                batch += [(reply, (reward - mean) / (spread + 1e-4), o) for reply, reward, o in zip(replies, rewards, old, strict=True)]
        waiting.append(batch)
        if len(waiting) > trial.lag:
            update(model, optimizer, waiting.pop(0))
            yield step - trial.lag + 1, model


def update(model: Any, optimizer: Any, batch: Sequence[tuple[Sampled, float, torch.Tensor]]) -> None:
    """Do one step on the clipped loss, a mean over tokens."""
    if not batch:
        return
    new, old = logprobs(model, [sampled for sampled, _, _ in batch]), torch.cat([old for _, _, old in batch])
    advantages = torch.cat([torch.full((len(sampled.ids),), advantage) for sampled, advantage, _ in batch])
    ratio = (new - old).exp()
    torch.min(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages).mean().neg().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def logprobs(model: Any, sampled: Sequence[Sampled]) -> torch.Tensor:
    """Return the log-probabilities of all sampled tokens, one reply after the other."""
    longest = max(len(s.prompt) + len(s.ids) for s in sampled)
    ids = torch.tensor([[*s.prompt, *s.ids, *[0] * (longest - len(s.prompt) - len(s.ids))] for s in sampled])
    mask = torch.zeros_like(ids, dtype=torch.bool)
    for row, s in enumerate(sampled):
        mask[row, len(s.prompt) : len(s.prompt) + len(s.ids)] = True
    mask = mask[:, 1:]
    logits = model.lm_head(model.model(input_ids=ids).last_hidden_state[:, :-1][mask])
    return torch.log_softmax(logits, -1).gather(1, ids[:, 1:][mask][:, None])[:, 0]


def practice(split: Any, n: int, seed: int) -> list[Exercise]:
    """Return the exercises of the task set."""
    return [Exercise.of(task.id) for task in PracticeTasks(PracticeOptions(split, n, seed)).tasks()]


def main() -> int:
    """Print the figures; exit 1 when a bound does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=["opencode", "aider"])
    parser.add_argument("--sessions", type=int, default=100)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--group-size", type=int, default=8)
    parser.add_argument("--rollouts", type=int, default=16)
    parser.add_argument("--lag", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=24)
    parser.add_argument("--permute", action="store_true", help="permute rewards inside groups: nothing should be learnt")
    args = parser.parse_args()
    agents: dict[str, dict[str, Any]] = {name: {} for name in args.agents}
    started = time.monotonic()
    folder = build_policy(agents, log=lambda line: print(line, file=sys.stderr))
    print(json.dumps({"built_s": round(time.monotonic() - started)}))
    bench = Bench(folder, record(agents, PluginHost.load(), log=lambda line: print(line, file=sys.stderr)))
    held_out, good = practice("eval", 12, 0), True
    for recording in bench.recordings:
        well, passed = bench.sessions(recording, [held_out[i % len(held_out)] for i in range(args.sessions)])
        good &= well >= 0.9
        print(json.dumps({"agent": recording.agent, "well_formed": well, "bound": 0.9, "pass_rate": passed}))
    trial = Trial(args.steps, args.group_size, args.rollouts, args.rate, args.lag, args.tasks, args.permute)
    before = bench.pass_rate(bench.model, held_out, 8)
    for seed in range(args.seeds):
        curve = {0: before} | {
            step: bench.pass_rate(model, held_out, 8 if step == args.steps else 3)
            for step, model in simulate(bench, trial, seed=seed)
            if step % 5 == 0 or step == args.steps
        }
        good &= args.permute or curve[args.steps] - before >= 0.2
        print(json.dumps({"seed": seed, "pass_rate": {step: round(rate, 3) for step, rate in curve.items()}, "bound": "+0.20"}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
