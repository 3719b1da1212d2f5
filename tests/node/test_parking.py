"""What is kept aside until a later block covers it (docs/protocol.md 10, 12)."""

import pytest

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.node.parking import Parking, may_come_later
from tests.chains import ChainBuilder


@pytest.mark.parametrize(
    ("code", "nonce", "mended"),
    [
        (Refusal.BALANCE, 5, True),
        (Refusal.POOL, 5, True),
        (Refusal.NONCE, 6, True),
        (Refusal.NONCE, 4, False),
        (Refusal.TIMESTAMP, 5, False),
        (Refusal.FEE, 5, False),
    ],
)
def test_what_a_later_block_may_mend(chain: ChainBuilder, code: Refusal, nonce: int, mended: bool) -> None:
    transfer = chain.transfer("alice", "bob", 1, nonce=nonce)
    assert may_come_later(RuleViolation(code, "no"), transfer, Account(nonce=5)) is mended


def test_what_is_put_is_there_until_it_is_taken(chain: ChainBuilder) -> None:
    parking, transfers = Parking(), [chain.transfer("alice", "bob", 1) for _ in range(3)]
    assert [parking.put(transfer) for transfer in [*transfers, transfers[0]]] == [True] * 4
    assert parking.transfers() == transfers
    assert parking.take([transfers[1].txid, transfers[1].txid, bytes(32)]) == [transfers[1]]
    assert parking.transfers() == [transfers[0], transfers[2]]
    assert (transfers[0].txid in parking, transfers[1].txid in parking, len(parking)) == (True, False, 2)


def test_there_is_room_for_so_many(chain: ChainBuilder) -> None:
    parking, transfers = Parking(max_transfers=2), [chain.transfer("alice", "bob", 1) for _ in range(3)]
    assert [parking.put(transfer) for transfer in transfers] == [True, True, False]
    parking.take([transfers[0].txid])
    assert parking.put(transfers[2])


def test_there_is_room_for_so_many_bytes(chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 1) for _ in range(3)]
    parking = Parking(max_bytes=2 * len(transfers[0].wire))
    assert [parking.put(transfer) for transfer in transfers] == [True, True, False]
    parking.take([transfers[0].txid])
    assert parking.put(transfers[2])
