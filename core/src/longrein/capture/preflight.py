"""Find out, before the first session, what a policy endpoint can be captured at."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from longrein.capture.checks import has_logprobs, read_tokens
from longrein.capture.endpoint import Level, PolicyEndpoint
from longrein.errors import CaptureError, nearest

_FLAGS = "Start vLLM with --return-tokens-as-token-ids --logprobs-mode processed_logprobs"
_TOOL = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}}}
_HELLO = [{"role": "user", "content": "Say hello."}]


async def check_endpoint(endpoint: PolicyEndpoint, *, training: bool, tools: bool = False) -> PolicyEndpoint:
    """Ask the endpoint for a few tokens and return it with `level` and `max_model_len` filled in.

    Args:
        endpoint: what the config says.
        training: also demand token ids and log-probabilities of the sampling distribution.
        tools: also demand that it takes tools, by a real request.

    Raises:
        CaptureError: nothing answers, the model is not served there, or (training) the replies cannot be trained from; the
            message names the engine's flag.
    """
    from openenv.core.harness.capture.upstream import UpstreamError

    from longrein.capture.engine import EngineClient

    client = EngineClient(endpoint)
    try:
        served = await _served(client)
        reply = await client.ask(_probe(endpoint, max_tokens=4, return_token_ids=True), exact=False)
        problem = read_tokens(reply).problem
        level: Level = "tokens" if problem is None else "logprobs" if has_logprobs(reply) else "text"
        if training and problem:
            raise CaptureError(f"the policy server at {endpoint.url} cannot be trained from: {problem}. {_FLAGS}")
        if training and await _raw_logprobs(client):
            raise CaptureError(
                f"the policy server at {endpoint.url} returns log-probabilities from before the temperature is applied,"
                f" so ratios would be wrong. {_FLAGS}"
            )
        if tools:
            await _takes_tools(client)
    except UpstreamError as error:
        raise CaptureError(f"the policy server at {endpoint.url} does not answer: {error}. Is it running, and is the url right?") from error
    finally:
        await client.aclose()
    return evolve(endpoint, level=level, max_model_len=endpoint.max_model_len or served.get("max_model_len"))


async def _served(client: Any) -> dict[str, Any]:
    """Return the model's entry in /models, {} for endpoints that have no such list."""
    from openenv.core.harness.capture.upstream import UpstreamHTTPError

    try:
        models = {entry["id"]: entry for entry in (await client.list_models())["data"]}
    except (UpstreamHTTPError, LookupError, TypeError, ValueError):
        return {}
    model = client.endpoint.model
    if models and model not in models:
        raise CaptureError(
            f"the policy server at {client.endpoint.url} does not serve {model!r}; it serves {', '.join(models)}{nearest(model, models)}"
        )
    entry: dict[str, Any] = models.get(model, {})
    return entry


def _probe(endpoint: PolicyEndpoint, **values: Any) -> dict[str, Any]:
    return {"model": endpoint.model, "messages": _HELLO, "temperature": 1.0, "logprobs": True, "top_logprobs": 0, **values}


async def _takes_tools(client: Any) -> None:
    from openenv.core.harness.capture.upstream import UpstreamHTTPError

    try:
        await client.ask(_probe(client.endpoint, max_tokens=1, tools=[_TOOL], tool_choice="auto"), exact=True)
    except UpstreamHTTPError as error:
        raise CaptureError(
            f"the policy server at {client.endpoint.url} refuses a request with tools, which the agents send: {error}. "
            "Start vLLM with --enable-auto-tool-choice --tool-call-parser NAME (hermes for Qwen models)"
        ) from error


async def _raw_logprobs(client: Any) -> bool:
    """True when the gap between the two likeliest tokens does not shrink with the temperature.

    The gap of processed values is (logit a - logit b) / temperature, so doubling the temperature halves it.
    """
    found: list[dict[str, float]] = []
    for temperature in (1.0, 2.0):
        reply = await client.ask(_probe(client.endpoint, max_tokens=1, temperature=temperature, top_logprobs=5), exact=True)
        entries = (reply["choices"][0].get("logprobs") or {}).get("content") or [{}]
        found.append({item["token"]: item["logprob"] for item in entries[0].get("top_logprobs") or []})
    # vLLM lists the sampled token first, however unlikely, so only tokens that are in both lists can be compared.
    cold, hot = found
    both = sorted((token for token in cold if token in hot), key=cold.__getitem__, reverse=True)[:2]
    if len(both) < 2:
        return False
    gaps = [values[both[0]] - values[both[1]] for values in (cold, hot)]
    # Equal values, or one that the engine writes for minus infinity, say nothing.
    return 0.1 < gaps[0] < 1000 and gaps[1] > 0.75 * gaps[0]
