"""What the description says of webhooks is what receivers get: each event, and the headers that sign it."""

import json
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from svcd.chain.params import DEVNET
from svcd.commerce.events import (
    ChainIdentity,
    Drop,
    DropReason,
    EventType,
    MismatchedTransfer,
    NodeAlarm,
    WebhookEvent,
    event_body,
)
from svcd.commerce.payment import ChainTip, Mismatch, Observation, PaymentLocation, PaymentState, payment_state
from svcd.commerce.payment_request import PaymentTerms
from svcd.commerce.signing import SigningKeys, signed_headers
from tests.chains import address_of
from tests.schema.documents import public

DOCUMENT = public(DEVNET)
SHOP = address_of("shop", "svcd")
TERMS = PaymentTerms("order-1", SHOP, 10**8, 3, 5)
TIP = ChainTip(20, bytes(32))
OBSERVED = [
    Observation(TIP),
    Observation(TIP, pending=bytes(32), match_count=1),
    Observation(
        TIP,
        location=PaymentLocation(bytes(32), bytes(32), 18, 0, 10**12),
        match_count=2,
        mismatches=(Mismatch(bytes(32), 7, None), Mismatch(bytes(32), 8, 19)),
        synced=False,
    ),
]
CHAIN = ChainIdentity(network_id=DEVNET.network_id, chain_id=DEVNET.chain_id, genesis_hash=DEVNET.genesis_hash)


def declared(name: str) -> Any:
    return DOCUMENT["webhooks"][name]["post"]


def is_described(name: str, body: Any) -> bool:
    schema = declared(name)["requestBody"]["content"]["application/json"]["schema"]
    return bool(Draft202012Validator({**schema, "components": DOCUMENT["components"]}).is_valid(body))


@pytest.mark.parametrize("observed", OBSERVED, ids=["unpaid", "pending", "confirmed"])
@pytest.mark.parametrize("event", EventType)
def test_a_body_is_as_described(event: EventType, observed: Observation) -> None:
    wrong = MismatchedTransfer(txid=bytes(32), sender=SHOP, amount=7, kind="late")
    webhook = WebhookEvent(
        type=event,
        epoch=1,
        sequence=2,
        state=payment_state(TERMS, observed),
        previous_state=PaymentState.PENDING,
        initial=False,
        observation=observed,
        alarm=NodeAlarm("deep-reorganisation", "14 blocks were replaced") if event is EventType.ALARM else None,
        mismatch=wrong if event is EventType.MISMATCHED else None,
        drop=Drop(DropReason.REPLACED, bytes(32), bytes(32)) if event is EventType.DROPPED else None,
    )
    body = json.loads(event_body(webhook, chain=CHAIN, watch_id="svcwh_" + 32 * "f", terms=TERMS, now=10**12))
    assert is_described(event, body)
    assert not is_described(event, {**body, "event": "payment.paid"})
    assert not is_described(event, {**body, "more": 1})
    assert not is_described(event, {**body, "networkId": 1}), "of another network"


@pytest.mark.parametrize("previous", ["", "an older secret of 32 characters"])
def test_the_headers_are_as_described(previous: str) -> None:
    keys = SigningKeys("a signing secret of 32 characters", previous)
    name, event_id = EventType.CONFIRMED.value, "svcevt_" + 32 * "0"
    headers = signed_headers(keys, event_id=event_id, event=name, body=b"{}", timestamp=1_795_170_611)
    parameters = {each["name"]: each for each in declared(name)["parameters"]}
    assert parameters.keys() == headers.keys()
    for header, value in headers.items():
        schema = {**parameters[header]["schema"], "components": DOCUMENT["components"]}
        Draft202012Validator(schema).validate(value)
