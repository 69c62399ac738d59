"""openenv's client to an engine, over a unix socket where the endpoint has one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
from openenv.core.harness.capture.upstream import InferenceClient, UpstreamTransportError, auth_headers, normalize_response

from longrein.capture.endpoint import PolicyEndpoint

_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=16)
"""httpcore looks at every pair of idle connections with each request, so only a few are kept."""
RESTART_S = 120.0
"""How long a request waits for a policy server that is being started again."""


class EngineClient(InferenceClient):  # type: ignore[misc]
    """Asks one engine for chat completions."""

    # Agents retry by themselves; openenv's pauses of 2 and 4 s would only hide an engine that is broken.
    _MAX_ATTEMPTS = 2
    _BACKOFF_S = 0.5

    def __init__(self, endpoint: PolicyEndpoint) -> None:
        super().__init__(endpoint.url, served_model=endpoint.model, api_key=endpoint.api_key, capture_level=endpoint.level)
        self.endpoint = endpoint
        self._http: httpx.AsyncClient | None = None

    async def _get_client(self) -> httpx.AsyncClient:
        if self._http is None:
            uds = self.endpoint.uds
            self._http = httpx.AsyncClient(
                base_url=self.endpoint.url,
                headers=auth_headers(self.api_key),
                limits=_LIMITS,
                timeout=httpx.Timeout(self._LIVENESS_TIMEOUT_S, connect=self._CONNECT_TIMEOUT_S),
                transport=httpx.AsyncHTTPTransport(uds=str(uds), limits=_LIMITS) if uds else None,
            )
        return self._http

    async def aclose(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    async def ask(self, body: dict[str, Any], *, exact: bool, patient: bool = True) -> dict[str, Any]:
        """Return the chat completion for a body.

        Args:
            body: as it goes out.
            exact: do not leave out parameters that the engine refuses; in training every one counts.
            patient: wait for a server of longrein's own that is being started again.

        Raises:
            UpstreamError: there is no reply, or it is no chat completion.
        """
        try:
            reply = await self._reply(body, exact=exact, patient=patient)
            if not isinstance(reply["choices"][0]["message"], dict):
                raise TypeError("the message is no object")
            if not isinstance(reply["choices"][0].get("finish_reason"), str):
                raise ValueError("it has no finish_reason, so it may have been cut")
            normalize_response(reply)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UpstreamTransportError(f"the engine's reply is no chat completion ({type(error).__name__}: {error})") from error
        return reply

    async def _reply(self, body: dict[str, Any], *, exact: bool, patient: bool) -> dict[str, Any]:
        """Ask; where longrein runs the server itself, ask again while one that died is being started again."""
        deadline = time.monotonic() + (RESTART_S if self.endpoint.kept and patient else 0)
        while True:
            try:
                reply: dict[str, Any] = await (self._post_with_retries if exact else self._post)("/chat/completions", body)
                return reply
            except UpstreamTransportError as error:
                if not isinstance(error.__cause__, (httpx.NetworkError, httpx.RemoteProtocolError)) or time.monotonic() > deadline:
                    raise
            await asyncio.sleep(self._BACKOFF_S)
