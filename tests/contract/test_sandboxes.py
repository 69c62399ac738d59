"""Both shipped sandboxes hold to the contract; one that says more than it does is found."""

from __future__ import annotations

import pytest

from longrein.sandbox import BubblewrapSandbox, SupervisorSandbox
from longrein.testing import SandboxContract


class TestBubblewrap(SandboxContract):
    sandbox = BubblewrapSandbox


class TestSupervisor(SandboxContract):
    sandbox = SupervisorSandbox


class Boastful(SupervisorSandbox):
    """Says that it hides the host."""

    is_security_boundary = True


def test_a_boundary_that_is_none_is_found() -> None:
    contract = type("TestBoastful", (SandboxContract,), {"sandbox": Boastful})
    with pytest.raises(AssertionError, match="a file of the host was read"):
        contract().test_host_is_hidden()
