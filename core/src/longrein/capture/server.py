"""The capture server: agents ask it, it asks the policy, and every call is recorded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from longrein.capture.endpoint import PolicyEndpoint
from longrein.capture.gate import Gate
from longrein.capture.listen import MAX_CONNECTIONS, loopback_listener, serving, unix_listener
from longrein.capture.session import CaptureSession
from longrein.config import SamplingConfig


class CaptureServer:
    """One server for all sessions of an engine; an async context manager that serves in the running loop.

    Args:
        endpoint: the policy.
        sampling: the policy's sampling, for every agent.
        training: refuse requests that constrain logits.
        open_port: serve all sessions on one loopback port, for sandboxes that share the network.
        max_reply_tokens: longest reply.
        tools: names of the tools that agents may offer to the model; None allows any.
    """

    def __init__(
        self,
        endpoint: PolicyEndpoint,
        *,
        sampling: SamplingConfig,
        training: bool,
        open_port: bool,
        max_reply_tokens: int,
        tools: Collection[str] | None = None,
    ) -> None:
        self._endpoint, self._sampling, self._training, self._tools = endpoint, sampling, training, tools
        self._open_port, self._max_reply_tokens = open_port, max_reply_tokens
        self._sessions: dict[str, CaptureSession] = {}
        self.port: int | None = None
        self._n_strangers = 0

    async def __aenter__(self) -> CaptureServer:
        # These load openenv, which takes seconds.
        from longrein.capture.app import build_app
        from longrein.capture.upstream import PolicyClient

        async with AsyncExitStack() as stack:
            self._client = PolicyClient(
                self._endpoint,
                sampling=self._sampling,
                training=self._training,
                max_reply_tokens=self._max_reply_tokens,
                tools=self._tools,
            )
            stack.push_async_callback(self._client.aclose)
            self._app = build_app(self._client)
            self._gate = Gate(self._app, self._sessions)
            if self._open_port:
                listener = loopback_listener()
                self.port = listener.getsockname()[1]
                await stack.enter_async_context(serving(self._gate, [listener]))
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exc: object) -> None:
        tasks = [task for session in self._sessions.values() for task in session.exchanges]
        for session in list(self._sessions.values()):
            session.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._stack.aclose()

    @property
    def version(self) -> int:
        """The policy's version, for replies that do not carry their own."""
        return int(self._client.version)

    @version.setter
    def version(self, version: int) -> None:
        self._client.version = version
        for session in self._sessions.values():
            session.weights_moved(version)

    @property
    def strangers(self) -> int:
        """Model calls that came without a live session's key and were refused."""
        return self._n_strangers + self._gate.strangers

    def open_session(self, *, max_calls: int, max_tokens: int, seed: int, max_staleness: int | None = None) -> CaptureSession:
        """Return a new session with a key of its own.

        Args:
            max_calls: model calls that it may make.
            max_tokens: tokens that it may sample.
            seed: from which each call's sampling seed is made.
            max_staleness: versions that the policy may move on by after its first reply before it is to be ended; None has no bound.
        """
        from longrein.capture.app import register

        session = CaptureSession(max_calls=max_calls, max_tokens=max_tokens, seed=seed, max_staleness=max_staleness, on_close=self._forget)
        self._sessions[session.key] = session
        register(self._app, session)
        return session

    @asynccontextmanager
    async def serve(self, session: CaptureSession, socket: Path) -> AsyncIterator[None]:
        """Serve one session, and no other, on a unix socket of its own until the block ends.

        Args:
            session: an open session; other keys are refused here, whoever's they are.
            socket: path of the socket; removed at the end.

        Raises:
            CaptureError: the socket cannot be bound.
        """
        gate = Gate(self._app, {session.key: session}, owner=session)
        try:
            async with serving(gate, [unix_listener(socket)], max_connections=MAX_CONNECTIONS):
                yield
        finally:
            self._n_strangers += gate.strangers
            socket.unlink(missing_ok=True)

    def _forget(self, session: CaptureSession) -> None:
        self._sessions.pop(session.key, None)
        self._client.servers.forget(session)
        self._app.state.registry.delete(session.key)
