"""Grades a workspace with hidden pytest files; the workspace's code runs out of their reach."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from longrein.hookspecs import hookimpl

if TYPE_CHECKING:
    from longrein.verifier import Verifier


@hookimpl
def longrein_verifiers() -> Sequence[type[Verifier]]:
    """Return the verifier "pytest"."""
    from longrein_pytest.verifier import PytestVerifier

    return [PytestVerifier]
