"""openenv's capture app, with our client inside and without its graph."""

from __future__ import annotations

from collections import deque
from typing import Any

from openenv.core.harness.capture.server import UpstreamPool, create_app

from longrein.capture.dialects import Dialects
from longrein.capture.session import CaptureSession
from longrein.capture.upstream import PolicyClient


def build_app(client: PolicyClient) -> Any:
    """Return openenv's app that answers through `client`."""
    app = create_app(model=client.served_model, max_output_tokens=None)
    app.state.inference = client
    app.state.transforms = Dialects()
    # The client records the calls and takes ids and log-probabilities out of the replies: openenv is to look for none.
    app.state.upstreams = UpstreamPool(default_client=client, default_level="text")
    return app


def register(app: Any, session: CaptureSession) -> None:
    """Make a session's key known to the app."""
    entry = app.state.registry.create(session.key)
    # openenv writes this id to its log, and the key must not get there.
    entry.session_id = "session"
    # Its graph holds every prompt whole: 614 MB for a session of 300 turns.
    entry.graph = _NoGraph()
    entry.findings = deque(maxlen=10)


class _NoGraph:
    def add_turn(self, node: Any) -> Any:
        return node

    def stats(self) -> dict[str, int]:
        return {"n_turns": 0, "n_roots": 0}
