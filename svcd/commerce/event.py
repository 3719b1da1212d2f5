"""The body of an event and its id: the bytes that are signed and sent (docs/webhooks.md "The body")."""

from hashlib import sha256

from attrs import frozen

from svcd.chain.encoding import canonical
from svcd.commerce.payment import payment_record
from svcd.commerce.watch import Draft, Watch


@frozen(kw_only=True)
class Origin:
    """The chain that events come from."""

    network_id: int
    chain_id: str
    genesis_hash: bytes


def event_id(watch: str, epoch: int, sequence: int) -> str:
    """``svcevt_`` and 32 hex characters: the same event has the same id, however often it is made anew."""
    return "svcevt_" + sha256(f"{watch}.{epoch}.{sequence}".encode("ascii")).hexdigest()[:32]


def event_body(origin: Origin, watch: Watch, draft: Draft, now: int) -> bytes:
    """The compact JSON of one event that ``watch`` has drafted at ``now``, Unix milliseconds; at most 4 KiB."""
    payment = payment_record(watch.terms, draft.sighting)
    tip = payment.pop("tip")
    return canonical(
        {
            "id": event_id(watch.id, draft.epoch, draft.sequence),
            "event": draft.event.value,
            "createdAt": str(now),
            "networkId": origin.network_id,
            "chainId": origin.chain_id,
            "genesisHash": origin.genesis_hash.hex(),
            "subscriptionId": watch.id,
            "epoch": draft.epoch,
            "sequence": draft.sequence,
            "initial": draft.initial,
            "previousState": draft.previous_state.value,
            "payment": payment,
            "tip": tip,
        }
    )
