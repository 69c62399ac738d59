"""The loop that answers several requests at once: one forward pass adds a token to every live reply."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Literal

import torch
from attrs import asdict, define, field, frozen

from longrein.errors import ServeError
from longrein.serve.kv import BatchKV
from longrein.serve.prefix import PrefixCache
from longrein.serve.sampling import Sampling, draw, log_distribution
from longrein.serve.weights import load_into

PREFILL_TOKENS = 1024
"""Prompt tokens in one forward pass at most; bounds the memory of its attention mask."""

FinishReason = Literal["stop", "length"]


@frozen
class Step:
    """One sampled token. `top` holds (id, log-probability) of the most likely ones, as many as were asked for."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@define(eq=False)
class Job:
    """A request under way. `on_step` is called in the scheduler's thread; it returns True when a stop string has come."""

    prompt: Sequence[int]
    sampling: Sampling
    on_step: Callable[[Step], bool]
    done: Future[FinishReason] = field(factory=Future)
    """Set once with how the reply ended, or with the exception that ended it."""
    steps: list[Step] = field(factory=list)
    version: int = -1
    """Version of the weights that answer; the same from the first token to the last."""
    cancelled: bool = False
    ids: list[int] = field(factory=list)
    """Prompt and sample; all but the last token are in the row."""
    rng: random.Random = field(factory=random.Random)


@define
class Counters:
    """Totals since the server started."""

    requests: int = 0
    replies: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    sampled_tokens: int = 0
    forwards: int = 0


class Scheduler:
    """Owns the model and runs it in a thread of its own.

    Args:
        model: a causal language model in eval mode whose layers all use full attention.
        eos_ids: tokens that end a reply.
        max_batch: replies under way at once; more requests wait.
        prefix_bytes: memory for the states of earlier prompts and replies, which later prompts begin with.
    """

    def __init__(self, model: Any, eos_ids: Sequence[int], *, max_batch: int = 32, prefix_bytes: int = 512 * 2**20) -> None:
        self.model, self.eos_ids, self.max_batch = model, frozenset(eos_ids), max_batch
        self.version = 0
        self.paused = False
        self.counters = Counters()
        self._prefixes = PrefixCache(prefix_bytes)
        self._kv = BatchKV(model.config.num_hidden_layers)
        self._live: list[Job] = []
        self._queue: deque[Job] = deque()
        self._idle_calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> None:
        """Queue a request."""
        with self._changed:
            if self._closed:
                raise ServeError("the policy server is stopping and takes no more requests")
            self.counters.requests += 1
            self._queue.append(job)
            self._changed.notify()

    def cancel(self, job: Job) -> None:
        """Give up a request whose client has gone."""
        with self._changed:
            job.cancelled = True
            self._changed.notify()

    def pause(self) -> Future[None]:
        """Start no further reply; the future is done when those under way have ended."""
        self.paused = True
        return self._when_idle(lambda: None)

    def resume(self) -> None:
        """Answer the queue again."""
        with self._changed:
            self.paused = False
            self._changed.notify()

    def load(self, path: Path, version: int) -> Future[None]:
        """Swap the weights between two replies; on failure the old ones stay."""

        def swap() -> None:
            load_into(self.model, path)
            self.version = version
            self._prefixes.clear()

        return self._when_idle(swap)

    def status(self) -> dict[str, int | bool]:
        """Return what the server is doing, in plain numbers."""
        return {
            "version": self.version,
            "paused": self.paused,
            "running": len(self._live),
            "queued": len(self._queue),
            "cached_tokens": self._prefixes.n_tokens,
            **asdict(self.counters),
        }

    def close(self) -> None:
        """End the thread; requests under way fail."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=2)  # a long forward pass may outlast it; the thread dies with the process

    def _when_idle(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        with self._changed:
            self._idle_calls.append((call, future))
            self._changed.notify()
        return future

    def _run(self) -> None:
        with torch.inference_mode():
            while self._wait():
                self._drop_cancelled()
                if not self._live:
                    self._call_idle()
                try:
                    self._admit()
                    if self._live:
                        self._step()
                except Exception as error:  # a failed forward must not end the server; the requests say what happened
                    self._fail_all(error)
        self._fail_all(ServeError("the policy server stopped before the reply was complete"))

    def _wait(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._live or self._idle_calls or self._admissible())
            return not self._closed

    def _admissible(self) -> bool:
        # A pending pause or load goes before queued requests, else a busy queue would put it off for ever.
        return bool(self._queue) and not self.paused and not self._idle_calls and len(self._live) < self.max_batch

    def _call_idle(self) -> None:
        while self._idle_calls:
            call, future = self._idle_calls.popleft()
            try:
                future.set_result(call())
            except Exception as error:  # handed to whoever asked
                future.set_exception(error)

    def _drop_cancelled(self) -> None:
        for row in reversed(range(len(self._live))):
            if self._live[row].cancelled:
                self._leave(row)
                self.counters.cancelled += 1

    def _admit(self) -> None:
        while self._admissible():
            job = self._queue.popleft()
            if job.cancelled:
                self.counters.cancelled += 1
                continue
            job.version, job.ids, job.rng = self.version, list(job.prompt), random.Random(job.sampling.seed)
            self._live.append(job)
            self._take(self._prefill(len(self._live) - 1), [job])

    def _prefill(self, row: int) -> torch.Tensor:
        """Compute a row's prompt and return the logits (1, vocabulary) after its last token."""
        ids = self._live[row].ids
        known, states = self._prefixes.longest(ids)
        start = min(known, len(ids) - 1)
        if start:
            self._kv.write(row, states, start)
        self.counters.prompt_tokens += len(ids)
        self.counters.reused_tokens += start
        device = self.model.device
        while True:
            end = min(start + PREFILL_TOKENS, len(ids))
            self._kv.extend(row, end)
            positions = torch.arange(start, end, device=device)
            mask = positions[:, None] >= torch.arange(end, device=device)
            logits = self._forward(torch.tensor([ids[start:end]], device=device), mask[None, None], positions[None])
            start = end
            if end == len(ids):
                break
        if known < len(ids):
            self._prefixes.add(ids, self._kv.read(row, len(ids)))
        return logits

    def _step(self) -> None:
        device = self.model.device
        positions = torch.tensor([len(job.ids) - 1 for job in self._live], device=device)
        end = max(len(job.ids) for job in self._live)
        self._kv.step(positions, end)
        mask = torch.arange(end, device=device) <= positions[:, None]
        tokens = torch.tensor([[job.ids[-1]] for job in self._live], device=device)
        logits = self._forward(tokens, mask[:, None, None], positions[:, None])
        self._take(logits, list(self._live))

    def _forward(self, tokens: torch.Tensor, mask: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        self.counters.forwards += 1
        # Additive, since attention took twice as long on a CPU with a mask of booleans (0.9 ms against 0.5 ms a layer).
        bias = torch.zeros(mask.shape, dtype=self.model.dtype, device=mask.device).masked_fill_(~mask, float("-inf"))
        output = self.model(input_ids=tokens, attention_mask=bias, position_ids=positions, cache=self._kv, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _take(self, logits: torch.Tensor, jobs: list[Job]) -> None:
        """Draw a token for each job and end those that are complete."""
        samplings = [job.sampling for job in jobs]
        logprobs = log_distribution(logits, samplings)
        tokens = draw(logprobs, samplings, [job.rng for job in jobs])
        chosen = logprobs.gather(1, torch.tensor(tokens, device=logprobs.device)[:, None])[:, 0].tolist()
        for row, job in enumerate(jobs):
            job.steps.append(Step(tokens[row], chosen[row], _top(logprobs[row], job.sampling.top_logprobs)))
            job.ids.append(tokens[row])
        self.counters.sampled_tokens += len(jobs)
        # A second pass: a finished row is filled by another one, whose last token must be counted by then.
        for job in jobs:
            if (reason := self._end(job, job.steps[-1])) is not None:
                self._finish(job, reason)

    def _end(self, job: Job, step: Step) -> FinishReason | None:
        stopped = job.on_step(step)
        if stopped or (step.token in self.eos_ids and not job.sampling.ignore_eos):
            return "stop"
        return "length" if len(job.steps) >= job.sampling.max_tokens else None

    def _finish(self, job: Job, reason: FinishReason) -> None:
        row = self._live.index(job)
        self._prefixes.add(job.ids[:-1], self._kv.read(row, len(job.ids) - 1))
        self._leave(row)
        self.counters.replies += 1
        job.done.set_result(reason)

    def _leave(self, row: int) -> None:
        """Free a row; the last row takes its place so that live rows stay together."""
        last = self._live.pop()
        if row < len(self._live):
            self._kv.move(len(self._live), row, len(last.ids) - 1)
            self._live[row] = last

    def _fail_all(self, error: Exception) -> None:
        jobs, self._live = self._live, []
        if self._closed:
            jobs = [*jobs, *self._queue]
            self._queue.clear()
        self._kv = BatchKV(self.model.config.num_hidden_layers)
        self._prefixes.clear()  # memory may be what was missing
        self.counters.failed += len(jobs)
        for job in jobs:
            job.done.set_exception(error)


def _top(logprobs: torch.Tensor, n: int) -> tuple[tuple[int, float], ...]:
    if not n:
        return ()
    values, ids = logprobs.topk(min(n, len(logprobs)))
    return tuple(zip(ids.tolist(), values.tolist(), strict=True))
