"""How results are told: each check in its own line, and a contract that cannot be had is a plain error."""

from __future__ import annotations

import pytest

from longrein.baseline import Nop
from longrein.errors import PluginError
from longrein.testing.contract import Contract, contract_of, not_applicable, require


class Four(Contract):
    """One check of each kind."""

    def test_holds(self) -> None:
        """It holds."""
        require(1 == 1, "never")

    def test_fails(self) -> None:
        """It fails."""
        require([], "nothing was there")

    def test_raises(self) -> None:
        """It raises."""
        raise ValueError("lost")

    def test_has_nothing_to_look_at(self) -> None:
        """It does not apply."""
        not_applicable("there is nothing")


def test_every_check_has_a_line_and_none_ends_the_others() -> None:
    found = [(result.check, result.says, result.state, result.reason.partition(" (")[0]) for result in Four.results()]
    assert found == [
        ("holds", "It holds.", "held", ""),
        ("fails", "It fails.", "failed", "nothing was there"),
        ("raises", "It raises.", "failed", "ValueError: lost"),
        ("has_nothing_to_look_at", "It does not apply.", "not applicable", "there is nothing"),
    ]


@pytest.mark.parametrize("name", ["AdapterContract", "VerifierContract", "SandboxContract"])
def test_every_check_of_the_kit_says_in_a_sentence_what_holds(name: str) -> None:
    from longrein import testing

    contract: type[Contract] = getattr(testing, name)
    assert len(contract.checks()) >= 10
    for check in contract.checks():
        says = (getattr(contract, check).__doc__ or "").strip()
        assert says.endswith("."), check
        assert "\n" not in says, check


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("lr_absent:Mine", r"names the contract 'lr_absent:Mine', which cannot be loaded: ModuleNotFoundError"),
        ("longrein.baseline:Mine", r"cannot be loaded: AttributeError"),
        ("longrein.baseline:Nop", r"adapter 'nop' names the contract 'longrein\.baseline:Nop', which is no AdapterContract"),
    ],
)
def test_a_contract_that_cannot_be_had_is_named(named: str, says: str) -> None:
    with pytest.raises(PluginError, match=says):
        contract_of("adapter", type("Nop", (Nop,), {"contract": named}), {})


def test_options_are_those_of_the_contract_with_those_given() -> None:
    assert contract_of("adapter", Nop, {"a": 1}).options == {"a": 1}
