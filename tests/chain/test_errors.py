"""Three kinds of failure, which say whose fault it is (docs/protocol.md 10)."""

import pytest

from svcd.chain.errors import Corrupt, NotYet, Refusal, RuleViolation, Wait

KINDS = [RuleViolation(Refusal.NONCE, "nonce must be 3, not 4"), NotYet(Wait.ORPHAN, "its parent is not here yet")]


@pytest.mark.parametrize("error", KINDS, ids=lambda error: error.code)
def test_an_error_has_a_code_and_is_one_sentence(error: RuleViolation | NotYet) -> None:
    assert error.args == (error.code, error.detail)
    assert str(error) == error.detail


def test_codes_are_words_that_do_not_change() -> None:
    """They are in log files and in answers; a new one is added here on purpose."""
    assert [str(code) for code in Refusal] == (
        "encoding size fields format constants address sender reference amount fee transaction-signature timestamp nonce "
        "balance block-signature transaction-count transactions-root height slot base-target multiplier work state-root "
        "consensus-root ancestor known-invalid pool"
    ).split()
    assert [str(code) for code in Wait] == ["early", "orphan", "busy"]


def test_no_kind_is_mistaken_for_another() -> None:
    kinds = (RuleViolation, NotYet, Corrupt)
    assert all(not issubclass(one, other) for one in kinds for other in kinds if one is not other)
