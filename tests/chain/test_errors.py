"""Three kinds of failure, which say whose fault it is (docs/protocol.md 10)."""

import pytest

from svcd.chain.errors import Corrupt, NotYet, Refusal, RuleViolation, Wait

KINDS = [RuleViolation(Refusal.NONCE, "nonce must be 3, not 4"), NotYet(Wait.ORPHAN, "its parent is not here yet")]


@pytest.mark.parametrize("error", KINDS, ids=lambda error: error.code)
def test_an_error_has_a_code_and_is_one_sentence(error: RuleViolation | NotYet) -> None:
    assert error.args == (error.code, error.detail)
    assert str(error) == error.detail


@pytest.mark.parametrize("code", [*Refusal, *Wait])
def test_codes_are_their_names(code: Refusal | Wait) -> None:
    """They stand in log files and answers, where one word should be found by the other."""
    assert str(code) == code.name.lower().replace("_", "-")


def test_no_kind_is_mistaken_for_another() -> None:
    kinds = (RuleViolation, NotYet, Corrupt)
    assert all(not issubclass(one, other) for one in kinds for other in kinds if one is not other)
