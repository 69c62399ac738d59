"""The engine process with a fake engine: no agents, no sandbox; its replies are sampled from the real policy server.

Started in the place of `longrein.training.child` by tests of the trainer. LONGREIN_TEST_ENGINE (JSON) says what to do.
"""

import contextlib
import json
import os
import signal
import sys

import httpx

from longrein.model import ModelCall, Outcome, Reward, Rollout, SessionResult, Trajectory, Turn, TurnLabel, Usage, Verdict
from longrein.training import child

WANTS = json.loads(os.environ.get("LONGREIN_TEST_ENGINE", "{}"))


class FakeEngine:
    """Two calls for each rollout; the reward is what WANTS["reward"] names."""

    def __init__(self, config, host, endpoint, recorder):
        self.config, self.endpoint, self.recorder, self.version = config, endpoint, recorder, 0
        self.made = 0

    async def __aenter__(self):
        self.client = httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(self.endpoint.uds)), timeout=60)
        return self

    async def __aexit__(self, *_):
        await self.client.aclose()

    async def rollout(self, spec, sampled):
        self.made += 1
        if self.made == WANTS.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.made == WANTS.get("raise_at"):
            raise ValueError("the fake engine broke")
        messages = [{"role": "user", "content": f"{spec.task.public.prompt} for {spec.agent}"}]
        calls = []
        for index in range(2):
            reply = await self.ask(messages, spec.seed + index)
            calls.append(self.call(reply, index, calls))
            messages = [*messages, reply["choices"][0]["message"], {"role": "user", "content": "go on"}]
        turns = tuple(Turn(call, TurnLabel("train", "the fake agent's own"), "structure") for call in calls)
        reward = self.reward(spec, calls)
        unscorable = reward is None
        rollout = Rollout(
            id=spec.id,
            group_id=spec.group_id,
            agent=spec.agent,
            taskset=spec.task.taskset,
            task_id=spec.task.id,
            task_digest=spec.task.digest,
            sample=spec.sample,
            seed=spec.seed,
            phase=spec.phase,
            session=SessionResult(spec.id, spec.agent, Outcome("llm_error" if unscorable else "completed"), Trajectory(turns), wall_s=0.1),
            verdict=Verdict.unscorable("fake") if unscorable else Verdict("passed" if reward > 0.5 else "failed", reward),
            reward=Reward(reward, decided_by="fake"),
        )
        self.recorder.rollout(rollout)
        return rollout

    async def ask(self, messages, seed):
        body = {"model": self.endpoint.model, "messages": messages, "max_tokens": 6, "seed": seed}
        body |= {"logprobs": True, "return_token_ids": True}
        response = await self.client.post(f"{self.endpoint.url}/chat/completions", json=body)
        response.raise_for_status()
        return response.json()

    def call(self, reply, index, before):
        choice, prompt = reply["choices"][0], reply["prompt_token_ids"]
        parent = None
        if before:
            start = [*before[0].context_ids, *before[0].sampled_ids]
            if prompt[: len(start)] == start:
                parent, prompt = before[0].id, prompt[len(start) :]
        logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
        version = reply["longrein"]
        return ModelCall(
            id=f"c{index}",
            index=index,
            parent_id=parent,
            context_ids=prompt,
            prompt_len=len(reply["prompt_token_ids"]),
            sampled_ids=choice["token_ids"],
            logprobs=logprobs,
            usage=Usage(None, len(logprobs)),
            reply=choice["message"],
            messages=({"role": "user", "content": "x"},),
            version_first=version["version_first"],
            version_last=version["version_last"],
        )

    def reward(self, spec, calls):
        kind = WANTS.get("reward", "even")
        if kind == "even":
            ids = [token for call in calls for token in call.sampled_ids]
            return sum(token % 2 == 0 for token in ids) / len(ids)
        if kind == "some_none":
            return [1.0, None, 0.0, None][spec.sample % 4]
        return {"same": 0.5}[kind]

    async def score_group(self, group):
        return group


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        raise SystemExit(child.main(sys.argv[1:], engine=FakeEngine))
