"""Payment URIs: the published vectors, and what holds for every request."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import RuleViolation
from svcd.chain.params import DEVNET, NETWORKS
from svcd.commerce.payment import MAX_CONFIRMATIONS, Terms
from svcd.commerce.terms import MAX_LABEL
from svcd.commerce.uri import MAX_URI, PaymentRequest, parse_uri, print_uri
from tests.chains import address_of
from tests.commerce.orders import REFERENCES

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "payment_uri.json").read_text("utf-8"))
ADDRESS = address_of("bob", "svcd")
URI = f"svc:{ADDRESS}?amount=25&ref=A&confirmations=12"


@pytest.mark.parametrize("vector", VECTORS["valid"], ids=lambda vector: vector["name"])
def test_valid(vector: dict[str, Any]) -> None:
    request = parse_uri(vector["uri"], NETWORKS[vector["network"]])
    assert {
        "recipient": request.terms.recipient,
        "amountBaseUnits": str(request.terms.amount),
        "reference": request.terms.reference,
        "confirmations": request.terms.required,
        "label": request.label,
    } == vector["request"]
    assert request.terms.since_height is None
    assert print_uri(request) == vector["printed"]


@pytest.mark.parametrize("vector", VECTORS["invalid"], ids=lambda vector: vector["name"])
def test_invalid(vector: dict[str, Any]) -> None:
    with pytest.raises(RuleViolation):
        parse_uri(vector["uri"], NETWORKS[vector["network"]])


LABELS = st.text(min_size=1, max_size=MAX_LABEL).filter(
    lambda text: (
        all(not (c < " " or "\x7f" <= c <= "\x9f" or c in "\u061c\u200e\u200f") for c in text)
        and not any("\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u2069" for c in text)
    )
)
ODD = st.text("+&%=#é ?/;\"'<>~\U0001f4b0\u05d0", min_size=1, max_size=MAX_LABEL)
REQUESTS = st.builds(
    PaymentRequest,
    st.builds(
        Terms,
        REFERENCES,
        st.sampled_from(["alice", "bob", "carol"]).map(lambda name: address_of(name, "svcd")),
        st.integers(1, MAX_INTEGER),
        st.integers(1, MAX_CONFIRMATIONS),
    ),
    st.none() | LABELS | ODD,
)


@given(REQUESTS)
def test_what_was_printed_is_what_is_read(request: PaymentRequest) -> None:
    uri = print_uri(request)
    assert uri.isascii()
    assert len(uri) <= 1_150 < MAX_URI
    assert parse_uri(uri, DEVNET) == request


@given(
    st.text(max_size=60)
    | st.from_regex(r"svc:[ -~]*", fullmatch=True)
    | st.builds(str.__add__, st.just(URI), st.text())
)
def test_whatever_is_read_is_printed_in_a_form_that_says_the_same(text: str) -> None:
    try:
        request = parse_uri(text, DEVNET)
    except RuleViolation:
        return
    assert parse_uri(print_uri(request), DEVNET) == request


@pytest.mark.parametrize(
    ("uri", "sentence"),
    [
        (URI + "&ref=B", "'ref' stands more than once in the payment URI; once is right"),
        (URI + "&req-x=1", "the payment URI asks for 'req-x', which is not known here; do not pay"),
        (URI.replace("amount", "amounts"), "the payment URI has no amount; it must have amount and ref"),
        (URI + "&label=%", "label must be percent-encoded: two hex digits after each %, %22 for a quotation mark"),
        (URI + "&label=%ff", "label must be UTF-8 in percent-encoding"),
        (
            URI + "&label=%E2%80%AE",
            "label holds U+202E; control characters and those that turn text around are not allowed",
        ),
    ],
)
def test_the_sentence_says_what_is_wrong(uri: str, sentence: str) -> None:
    with pytest.raises(RuleViolation) as refused:
        parse_uri(uri, DEVNET)
    assert refused.value.detail == sentence


def test_a_height_from_which_a_payment_counts_is_the_merchants_affair() -> None:
    assert print_uri(PaymentRequest(Terms("A", ADDRESS, 25 * 10**8, since_height=7))) == URI
