"""The capture server: agents ask it, it asks the policy, and every call is recorded."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from longrein.capture.endpoint import PolicyEndpoint
from longrein.capture.gate import Gate
from longrein.capture.listen import loopback_listener, serving, unix_listener
from longrein.capture.session import CaptureSession
from longrein.config import SamplingConfig


class CaptureServer:
    """One server for all sessions of an engine; an async context manager that serves in the running loop.

    Args:
        endpoint: the policy.
        sampling: the policy's sampling, for every agent.
        training: refuse requests that constrain logits.
        socket: path of the unix socket to serve on.
        open_port: serve on a loopback port as well, for sandboxes that share the network.
        max_reply_tokens: longest reply.

    Raises:
        CaptureError: on entering, when the socket cannot be bound.
    """

    def __init__(
        self, endpoint: PolicyEndpoint, *, sampling: SamplingConfig, training: bool, socket: Path, open_port: bool, max_reply_tokens: int
    ) -> None:
        self._endpoint, self._sampling, self._training = endpoint, sampling, training
        self._socket, self._open_port, self._max_reply_tokens = socket, open_port, max_reply_tokens
        self._sessions: dict[str, CaptureSession] = {}
        self.port: int | None = None

    async def __aenter__(self) -> CaptureServer:
        # These load openenv, which takes seconds.
        from longrein.capture.app import build_app
        from longrein.capture.upstream import PolicyClient

        async with AsyncExitStack() as stack:
            listeners = [stack.enter_context(unix_listener(self._socket))]
            stack.callback(self._socket.unlink, missing_ok=True)
            if self._open_port:
                listeners.append(stack.enter_context(loopback_listener()))
                self.port = listeners[1].getsockname()[1]
            self._client = PolicyClient(
                self._endpoint, sampling=self._sampling, training=self._training, max_reply_tokens=self._max_reply_tokens
            )
            stack.push_async_callback(self._client.aclose)
            self._app = build_app(self._client)
            self._gate = Gate(self._app, self._sessions)
            await stack.enter_async_context(serving(self._gate, listeners))
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

    @property
    def strangers(self) -> int:
        """Model calls that came without a live session's key and were refused."""
        return self._gate.strangers

    def open_session(self, *, max_calls: int, max_tokens: int, seed: int) -> CaptureSession:
        """Return a new session with a key of its own.

        Args:
            max_calls: model calls that it may make.
            max_tokens: tokens that it may sample.
            seed: from which each call's sampling seed is made.
        """
        from longrein.capture.app import register

        session = CaptureSession(max_calls=max_calls, max_tokens=max_tokens, seed=seed, on_close=self._forget)
        self._sessions[session.key] = session
        register(self._app, session)
        return session

    def _forget(self, session: CaptureSession) -> None:
        self._sessions.pop(session.key, None)
        self._app.state.registry.delete(session.key)
