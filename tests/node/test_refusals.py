"""Refused transfers, counted by reason."""

import pytest
from twisted.internet.defer import Deferred, fail

from svcd.chain.errors import Refusal, RuleViolation
from svcd.node.refusals import Refusals
from tests.support import result_of


def test_a_refusal_is_counted_and_passed_on() -> None:
    refusals = Refusals()
    for code in (Refusal.FEE, Refusal.NONCE, Refusal.FEE):
        refused: Deferred[None] = fail(RuleViolation(code, "")).addErrback(refusals.note)
        with pytest.raises(RuleViolation):
            result_of(refused)
    assert refusals == {Refusal.FEE: 2, Refusal.NONCE: 1}


def test_an_error_of_ours_is_no_refusal() -> None:
    refusals = Refusals()
    failed: Deferred[None] = fail(ZeroDivisionError()).addErrback(refusals.note)
    with pytest.raises(ZeroDivisionError):
        result_of(failed)
    assert not refusals
