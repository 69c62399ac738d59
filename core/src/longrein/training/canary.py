"""After every weight sync: does the server serve the weights that the trainer has?

The mean importance ratio is 1 in expectation whatever the two policies are, so it cannot tell. Here the server samples a
short reply to a fixed prompt, the trainer scores the same ids on the path of its loss, and the two must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from longrein.capture.endpoint import PolicyEndpoint
from longrein.errors import ServeError

if TYPE_CHECKING:
    import torch

PROMPT = "Write one line of Python that prints a number."
N_TOKENS = 16


@frozen
class Bounds:
    """Largest differences of log-probabilities (nats) that equal weights may show."""

    mean: float
    max: float
    noise: float
    """Changes of the trainer's own values up to this need not show at the server (equal fp32 weights differ by about 1e-6)."""


BOUNDS = {"float32": Bounds(1e-3, 1e-2, 1e-5), "bfloat16": Bounds(5e-2, 0.5, 5e-2)}


@frozen
class Reply:
    """A reply as the server reported it."""

    prompt_ids: Sequence[int]
    ids: Sequence[int]
    logprobs: Sequence[float]
    version: int | None
    """The version that the server says it answered with; None where it does not say."""


class Canary:
    """Compares the server with the trainer's model.

    Args:
        endpoint: where the policy is served.
        dtype: of the served weights.
        temperature: of the training policy.
    """

    def __init__(self, endpoint: PolicyEndpoint, *, dtype: str, temperature: float) -> None:
        self._endpoint, self._bounds, self._temperature = endpoint, BOUNDS[dtype], temperature
        self._before: dict[int, tuple[Reply, list[float]]] = {}

    def sample(self, version: int) -> Mapping[int, Reply]:
        """Ask each server for a short reply of the version that was synced.

        Returns:
            The replies by the server's number; one of several that is just being started again has none.

        Raises:
            ServeError: none can be asked, or a reply lacks ids or log-probabilities.
        """
        replies: dict[int, Reply] = {}
        errors: list[ServeError] = []
        for number, endpoint in enumerate((self._endpoint, *self._endpoint.others)):
            try:
                replies[number] = self._ask(endpoint, version)
            except ServeError as error:
                errors.append(error)
        if not replies:
            raise errors[0]
        return replies

    def _ask(self, endpoint: PolicyEndpoint, version: int) -> Reply:
        import httpx

        body = {
            "model": endpoint.model_at(version),
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": N_TOKENS,
            "temperature": self._temperature,
            "logprobs": True,
            "return_token_ids": True,
            "seed": 0,
        }
        key = endpoint.api_key
        try:
            with httpx.Client(
                transport=httpx.HTTPTransport(uds=str(endpoint.uds)) if endpoint.uds else None,
                timeout=120,
                headers={"Authorization": f"Bearer {key}"} if key else {},
                trust_env=False,
            ) as client:
                response = client.post(f"{endpoint.url}/chat/completions", json=body)
                response.raise_for_status()
            answer = response.json()
            choice = answer["choices"][0]
            logprobs = [float(entry["logprob"]) for entry in choice["logprobs"]["content"]]
            reply = Reply(answer["prompt_token_ids"], choice["token_ids"], logprobs, answer.get("longrein", {}).get("version_last"))
        except (httpx.HTTPError, KeyError, TypeError, ValueError) as error:
            raise ServeError(f"the canary could not ask the policy server: {type(error).__name__}: {error}") from error
        if not reply.ids or len(reply.ids) != len(reply.logprobs):
            raise ServeError(f"the canary's reply has {len(reply.ids)} ids and {len(reply.logprobs)} log-probabilities")
        return reply

    def compare(self, replies: Mapping[int, Reply], version: int, model: torch.nn.Module) -> dict[str, float]:
        """Check the replies of all servers against the trainer's model and return the largest differences.

        Args:
            replies: as `sample` gave them after the sync.
            version: the version that was synced.
            model: the trainer's model, unwrapped.

        Raises:
            ServeError: a server serves another version, other weights, or weights that did not change when the trainer's did.
        """
        figures = [self._compare(number, reply, version, model) for number, reply in replies.items()]
        return {key: max(values[key] for values in figures if key in values) for key in figures[0]}

    def _compare(self, number: int, reply: Reply, version: int, model: torch.nn.Module) -> dict[str, float]:
        if reply.version is not None and reply.version != version:
            raise ServeError(f"canary failed: the server answers with version {reply.version} after version {version} was synced")
        trained = score(model, reply)
        differences = [abs(a - b) for a, b in zip(trained, reply.logprobs, strict=True)]
        mean, most = sum(differences) / len(differences), max(differences)
        if not (mean < self._bounds.mean and most < self._bounds.max):
            raise ServeError(
                f"canary failed after the sync of version {version}: the served log-probabilities differ from the trainer's by "
                f"{mean:.2e} on average and {most:.2e} at most (bounds {self._bounds.mean:g} and {self._bounds.max:g}): "
                "the server does not serve these weights"
            )
        changed = self._changed(number, reply, version, model)
        self._before[number] = (reply, trained)
        return {"canary/difference_mean": mean, "canary/difference_max": most, **changed}

    def _changed(self, number: int, reply: Reply, version: int, model: torch.nn.Module) -> dict[str, float]:
        if number not in self._before:
            return {}
        before, scored = self._before[number]
        moved = max(abs(a - b) for a, b in zip(score(model, before), scored, strict=True))
        # With the same ids the served values must have moved as the trainer's did; with others they have changed anyway.
        same = list(reply.ids) == list(before.ids)
        served = max(abs(a - b) for a, b in zip(reply.logprobs, before.logprobs, strict=True)) if same else moved
        if moved > self._bounds.noise and served < moved / 2:
            raise ServeError(
                f"canary failed after the sync of version {version}: the trainer's log-probabilities moved by {moved:.2e}, "
                f"the served ones by {served:.2e}: the server still serves the weights before"
            )
        return {"canary/moved_max": moved}


def score(model: torch.nn.Module, reply: Reply) -> list[float]:
    """Return the trainer's log-probabilities of a reply's ids, on the path that its loss takes (packed, fused head)."""
    import numpy as np
    import torch
    from trl.experimental.async_grpo.packing import TreeRow

    ids = np.asarray([*reply.prompt_ids, *reply.ids], dtype=np.int64)
    mask = np.asarray([0] * len(reply.prompt_ids) + [1] * len(reply.ids), dtype=np.int64)
    row = TreeRow()
    row.add({"input_ids": ids, "completion_mask": mask, "old_log_probs": np.zeros(len(ids)), "advantage": 0.0, "group_id": 0})
    device = next(model.parameters()).device
    packed: dict[str, Any] = {key: value.to(device) for key, value in row.pack().items()}
    longest_q, longest_k = packed["tree_max_seqlens"].tolist()
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            outputs: Any = model(
                input_ids=packed["input_ids"][None],
                position_ids=packed["position_ids"][None],
                shift_labels=packed["shift_labels"][None],
                fused_lm_head=True,
                tree_max_seqlen_q=longest_q,
                tree_max_seqlen_k=longest_k,
                **{key: packed[key] for key in ("tree_kv_index", "tree_cu_seqlens_q", "tree_cu_seqlens_k")},
            )
    finally:
        model.train(training)
    values: list[float] = outputs.log_probs.flatten()[packed["token_index"]].tolist()
    return values
