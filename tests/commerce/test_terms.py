"""What an order may ask for: each value that is taken, and each that is refused with a sentence."""

from typing import Any

import pytest

from svcd.chain.errors import RuleViolation
from svcd.commerce.payment import Terms
from svcd.commerce.terms import (
    one_amount,
    parse_confirmations,
    parse_confirmations_text,
    parse_label,
    parse_reference,
    terms_of,
)
from tests.chains import TEST_PARAMS, address_of, key_of


@pytest.mark.parametrize("text", ["a", "Z", "0", "...", "._:-", "order-1042", "x" * 64])
def test_reference(text: str) -> None:
    assert parse_reference(text) == text


@pytest.mark.parametrize("value", ["", "x" * 65, "a b", "a/b", "é", "a\n", "A+B", None, 1, ["a"], True])
def test_no_reference(value: Any) -> None:
    with pytest.raises(RuleViolation, match="reference must be 1 to 64 of the characters"):
        parse_reference(value)


@pytest.mark.parametrize("text", [".", ".."])
def test_what_a_url_swallows_is_no_reference(text: str) -> None:
    with pytest.raises(RuleViolation, match=r"must not be \. or \.\."):
        parse_reference(text)


@pytest.mark.parametrize(
    "text", ["a", "x" * 80, "\U0001f4b0" * 80, "caf\u00e9 + tea & 5 %", "\u05e9\u05dc\u05d5\u05dd", "\u200d"]
)
def test_label(text: str) -> None:
    assert parse_label(text) == text


def test_an_empty_label_is_none() -> None:
    assert parse_label("") is None


@pytest.mark.parametrize("value", ["x" * 81, None, 5, ["a"]])
def test_no_label(value: Any) -> None:
    with pytest.raises(RuleViolation, match="label must be a string of at most 80 characters"):
        parse_label(value)


@pytest.mark.parametrize(
    "odd", "\x00\x1f\x7f\x85\x9f\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ud800\udfff"
)
def test_label_that_shows_what_it_is_not(odd: str) -> None:
    with pytest.raises(RuleViolation, match=f"label holds U\\+{ord(odd):04X}"):
        parse_label(f"a{odd}b")


@pytest.mark.parametrize("value", [1, 12, 1000])
def test_confirmations(value: int) -> None:
    assert parse_confirmations(value) == parse_confirmations_text(str(value)) == value


@pytest.mark.parametrize("value", [0, -1, 1001, True, 1.0, "12", None, 10**400])
def test_no_confirmations(value: Any) -> None:
    with pytest.raises(RuleViolation, match="confirmations must be a whole number from 1 to 1000"):
        parse_confirmations(value)


@pytest.mark.parametrize("text", ["", "0", "012", "+12", "-1", "1001", "12.0", " 12", "\uff11", "9" * 400, "12\n"])
def test_no_confirmations_in_a_query(text: str) -> None:
    with pytest.raises(RuleViolation, match="confirmations must be a whole number from 1 to 1000"):
        parse_confirmations_text(text)


def test_one_amount_is_given() -> None:
    assert one_amount(5, None) == one_amount(None, 5) == 5


@pytest.mark.parametrize("both", [(5, 5), (5, 6)])
def test_two_amounts_are_refused_even_if_they_agree(both: tuple[int, int]) -> None:
    with pytest.raises(RuleViolation, match="both given; give one of them"):
        one_amount(*both)


def test_no_amount_is_refused() -> None:
    with pytest.raises(RuleViolation, match="amount is missing: give amount in coins or amountBaseUnits in base units"):
        one_amount(None, None)


def test_terms_know_the_key_of_their_recipient() -> None:
    terms = terms_of(TEST_PARAMS, reference="A", recipient=address_of("bob", "svct"), amount=5)
    assert terms == Terms("A", address_of("bob", "svct"), 5, 12, None)
    assert terms.key == key_of("bob").hash


@pytest.mark.parametrize("recipient", [address_of("bob", "svcd"), address_of("bob", "svc"), "", "svct1q", "x", None, 5])
def test_recipient_of_another_network(recipient: Any) -> None:
    with pytest.raises(RuleViolation, match="recipient must be an address of this network"):
        terms_of(TEST_PARAMS, reference="A", recipient=recipient, amount=5)
