"""The liar of the wallets' tests tells the lies that it is asked for, and the truth otherwise."""

import json
import urllib.request
from http.client import RemoteDisconnected
from typing import Any

import pytest
from twisted.internet.task import Clock

from svcd.chain.address import encode_address, key_hash
from svcd.chain.encoding import parse_wire_object
from svcd.chain.params import DEVNET
from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from tests.chains import COIN, address_of
from tests.lying_node import BROADCAST_LIES, DAY, Answer, Liar, Lie, Question, SimulatedChain, lying_proxy

SEED = bytes(range(32))
SENDER = encode_address(key_hash(public_key_of(SEED)), "svcd")
SHOP = address_of("shop", "svcd")


@pytest.fixture
def chain() -> SimulatedChain:
    clock = Clock()
    clock.advance(DEVNET.slot_time(1_000_000) // 1000)
    return SimulatedChain(clock, {SENDER: 10 * COIN})


def signed(chain: SimulatedChain, nonce: int = 0, fee: int = 10_000) -> Transfer:
    draft = Draft(recipient=SHOP, amount=COIN, fee=fee, nonce=nonce, timestamp=chain.now(), reference="order-1")
    return sign_transfer(draft, seed=SEED, params=DEVNET)


def broadcast(liar: Liar, transfer: Transfer) -> Answer | None:
    body = json.dumps({"transaction": parse_wire_object(transfer.wire)}).encode()
    return liar.answer(Question("POST", "/rpc/broadcast", body))


def asked(liar: Liar, path: str) -> Any:
    answer = liar.answer(Question("GET", path))
    assert answer is not None
    return answer.members


def test_honest_answers(chain: SimulatedChain) -> None:
    liar, transfer = Liar(chain.answer), signed(chain)
    order = f"/rpc/commerce/payment/order-1?recipient={SHOP}&amountBaseUnits={COIN}&confirmations=2"
    assert asked(liar, order)["payment"]["state"] == "unpaid"
    assert [broadcast(liar, transfer).members["state"] for _ in range(2)] == ["accepted", "known"]  # type: ignore[union-attr]
    assert asked(liar, order)["payment"]["state"] == "pending"
    account = asked(liar, f"/rpc/balance/{SENDER}")["account"]
    assert (account["nonce"], account["pendingNonce"], account["pendingBalance"]) == ("0", "1", str(9 * COIN - 10_000))
    assert "error" in asked(liar, f"/rpc/transaction/{transfer.txid.hex()}")
    for state in ("confirming", "confirmed"):
        chain.mine()
        assert asked(liar, order)["payment"]["state"] == state
    assert asked(liar, f"/rpc/transaction/{transfer.txid.hex()}")["transaction"]["confirmations"] == 2
    assert chain.paid(SHOP, COIN, "order-1") == 1
    assert broadcast(liar, signed(chain, fee=20_000)).status == 400  # type: ignore[union-attr]
    chain.undo(2)
    assert asked(liar, order)["payment"]["state"] == "pending"


def test_two_payments_of_one_order_are_noticed(chain: SimulatedChain) -> None:
    liar = Liar(chain.answer, {Lie.RELAY_AND_REFUSE})
    broadcast(liar, signed(chain))
    broadcast(liar, signed(chain, fee=20_000))
    assert chain.can_be_paid_twice() == [], "one nonce"
    broadcast(liar, signed(chain, nonce=1))
    assert len(chain.can_be_paid_twice()) == 2
    chain.mine()
    assert chain.paid(SHOP, COIN, "order-1") == 2
    chain.undo(1)
    chain.clock.advance(DAY // 1000 + 1)
    assert chain.can_be_paid_twice() == [], "all are too old"


@pytest.mark.parametrize("lie", BROADCAST_LIES)
def test_lies_about_a_broadcast(chain: SimulatedChain, lie: Lie) -> None:
    liar = Liar(chain.answer, {lie})
    answer = broadcast(liar, signed(chain))
    relays = lie.name.startswith("RELAY")
    assert (len(chain.known), len(liar.relayed)) == (int(relays), int(relays))
    liar.relay_late()
    assert len(chain.known) == len(liar.relayed) == 1
    said = None if answer is None else (answer.status, answer.members.get("txid") == signed(chain).txid.hex())
    assert (
        said
        == {
            Lie.RELAY_AND_REFUSE: (400, False),
            Lie.RELAY_AND_FAIL: (500, False),
            Lie.RELAY_AND_HANG: None,
            Lie.RELAY_AND_MISNAME: (200, False),
            Lie.DROP_AND_ACCEPT: (200, True),
            Lie.DROP_AND_REFUSE: (400, False),
        }[lie]
    )


def test_lies_about_the_chain(chain: SimulatedChain) -> None:
    liar, transfer = Liar(chain.answer), signed(chain)
    broadcast(liar, transfer)
    chain.mine()
    broadcast(liar, signed(chain, nonce=1))
    order = f"/rpc/commerce/payment/order-1?recipient={SHOP}&amountBaseUnits={COIN}&confirmations=2"
    liar.lies = {Lie.UNKNOWN}
    assert asked(liar, order)["payment"]["state"] == "unpaid"
    assert "error" in asked(liar, f"/rpc/transaction/{transfer.txid.hex()}")
    chain.undo(1)
    liar.lies = {Lie.INCLUDED}
    assert asked(liar, f"/rpc/transaction/{transfer.txid.hex()}")["transaction"]["confirmations"] == 100
    for lie, nonces in ((Lie.NONCE_AHEAD, ("7", "9")), (Lie.NONCE_BEHIND, ("0", "0")), (Lie.NONE_WAITING, ("0", "0"))):
        liar.lies = {lie}
        account = asked(liar, f"/rpc/balance/{SENDER}")["account"]
        assert (account["nonce"], account["pendingNonce"]) == nonces
    now = DEVNET.slot_at(chain.now())
    for lie, slot in ((Lie.SLOT_AHEAD, now + 172_800), (Lie.SLOT_BEHIND, max(now - 172_800, 0))):
        liar.lies = {lie}
        assert asked(liar, "/rpc/status")["status"]["slot"] == str(slot)
    liar.lies = {Lie.CATCHING_UP}
    assert asked(liar, "/rpc/status")["status"]["syncState"] == "catching-up"


@pytest.mark.socket
def test_a_proxy_lies_on_a_socket(chain: SimulatedChain) -> None:
    with lying_proxy(chain.answer) as (honest, _), lying_proxy(honest, {Lie.NONCE_AHEAD}) as (url, liar):
        with urllib.request.urlopen(f"{url}/rpc/balance/{SENDER}", timeout=30) as response:  # noqa: S310
            assert json.load(response)["account"]["nonce"] == "7"
        body = json.dumps({"transaction": parse_wire_object(signed(chain).wire)}).encode()
        liar.lies = {Lie.RELAY_AND_HANG}
        with pytest.raises(RemoteDisconnected):
            urllib.request.urlopen(f"{url}/rpc/broadcast", body, timeout=30)  # noqa: S310
        assert len(chain.known) == 1
        liar.lies = {Lie.RELAY_AND_REFUSE}
        with pytest.raises(urllib.request.HTTPError) as refused:
            urllib.request.urlopen(f"{url}/rpc/broadcast", body, timeout=30)  # noqa: S310
        with refused.value:
            assert refused.value.code == 400
