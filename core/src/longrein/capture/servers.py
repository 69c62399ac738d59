"""The servers of one policy, as capture uses them: a session sticks to one, a new one goes where fewest are, a dead one rests."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx
from attrs import define, field
from openenv.core.harness.capture.upstream import UpstreamError, UpstreamTransportError

from longrein.capture.endpoint import PolicyEndpoint
from longrein.capture.engine import EngineClient
from longrein.capture.session import CaptureSession

log = logging.getLogger(__name__)
PROBE_S = 2.0
"""How often a server that rests is asked whether it is back."""


@define(eq=False)
class _Server:
    client: EngineClient
    sessions: set[int] = field(factory=set)
    """The sessions that stick to it: their prefixes are in its cache."""
    resting: bool = False


class Servers:
    """Asks one of the servers of a policy.

    Args:
        endpoint: the first server; `endpoint.others` are the further ones.
    """

    def __init__(self, endpoint: PolicyEndpoint) -> None:
        self._servers = [_Server(EngineClient(one)) for one in (endpoint, *endpoint.others)]
        self._probes: set[asyncio.Task[None]] = set()
        self.version = 0
        """The live policy version: a server that comes back is used only when it serves no older one."""

    async def ask(self, session: CaptureSession, body: dict[str, Any], *, exact: bool) -> dict[str, Any]:
        """Ask the session's server; one that has died is left for another.

        Raises:
            UpstreamError: no server gave a reply.
        """
        while True:
            server = self._of(session)
            alone = sum(not other.resting for other in self._servers) <= 1
            try:
                return await server.client.ask(body, exact=exact, patient=alone)
            except UpstreamTransportError as error:
                if alone or not isinstance(error.__cause__, (httpx.NetworkError, httpx.RemoteProtocolError)):
                    raise
                self._rest(server)

    def forget(self, session: CaptureSession) -> None:
        """Note that a session has ended."""
        for server in self._servers:
            server.sessions.discard(id(session))

    async def aclose(self) -> None:
        """End the probes and close the connections."""
        for probe in self._probes:
            probe.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        for server in self._servers:
            await server.client.aclose()

    def _of(self, session: CaptureSession) -> _Server:
        for server in self._servers:
            if id(session) in server.sessions and not server.resting:
                return server
        self.forget(session)
        least = min(self._servers, key=lambda server: (server.resting, len(server.sessions)))
        least.sessions.add(id(session))
        return least

    def _rest(self, server: _Server) -> None:
        if server.resting:
            return
        server.resting = True
        log.warning("the policy server at %s does not answer; its sessions go on at another", _name(server))
        probe = asyncio.ensure_future(self._probe(server))
        self._probes.add(probe)
        probe.add_done_callback(self._probes.discard)

    async def _probe(self, server: _Server) -> None:
        while True:
            await asyncio.sleep(PROBE_S)
            served = await served_version(server.client)
            if served is not None and served >= self.version:
                server.resting = False
                log.warning("the policy server at %s is back with version %d", _name(server), served)
                return


async def served_version(client: EngineClient) -> int | None:
    """Return the policy version that a server says it serves, 0 where it says none; None when it does not answer."""
    http = await client._get_client()
    root = str(http.base_url).rstrip("/").removesuffix("/v1")
    try:
        for route, key in (("weight_info", "weight_version"), ("health", "version")):
            answer = await http.get(f"{root}/{route}", timeout=10)
            if answer.status_code == 200 and answer.headers.get("content-type", "").startswith("application/json"):
                value = answer.json().get(key)
                return int(value) if str(value).isdecimal() else 0
        await client.list_models()
    except (httpx.HTTPError, UpstreamError, ValueError):
        return None
    return 0


def _name(server: _Server) -> str:
    endpoint = server.client.endpoint
    return str(endpoint.uds or endpoint.url)
