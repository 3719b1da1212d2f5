"""Disconnected transfers are parked until a later block covers them (docs/protocol.md 10, 12)."""

import pytest

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.node import disconnected_transfers as disconnected_module
from svcd.node.disconnected_transfers import DisconnectedTransfer, DisconnectedTransfers, may_become_valid
from tests.chains import ChainBuilder, key_of


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
def test_only_violations_that_a_later_block_can_lift_may_become_valid(
    chain: ChainBuilder, code: Refusal, nonce: int, mended: bool
) -> None:
    transfer = chain.transfer("alice", "bob", 1, nonce=nonce)
    assert may_become_valid(RuleViolation(code, "no"), transfer, Account(nonce=5)) is mended


def put(pool: DisconnectedTransfers, *transfers: Transfer, crowded: bool = False) -> list[bool]:
    return [pool.park(DisconnectedTransfer(transfer, 1), pool_full=crowded) for transfer in transfers]


def held(pool: DisconnectedTransfers) -> list[Transfer]:
    return [item.transfer for item in pool.parked()]


def tried(pool: DisconnectedTransfers, *names: str) -> list[Transfer]:
    return [item.transfer for item in pool.retry({key_of(name).hash: Account() for name in names})]


def test_a_disconnected_transfer_is_held_until_it_is_taken(chain: ChainBuilder) -> None:
    pool, transfers = DisconnectedTransfers(), [chain.transfer("alice", "bob", 1) for _ in range(3)]
    assert put(pool, *transfers, transfers[0]) == [True] * 4
    assert held(pool) == transfers
    taken = pool.take([transfers[1].txid, transfers[1].txid, bytes(32)])
    assert [item.transfer for item in taken] == [transfers[1]]
    assert held(pool) == [transfers[0], transfers[2]]
    assert [item.transfer for item in pool.get([transfer.txid for transfer in transfers])] == held(pool)


def test_there_is_room_for_so_many(chain: ChainBuilder) -> None:
    pool, transfers = DisconnectedTransfers(max_transfers=2), [chain.transfer("alice", "bob", 1) for _ in range(3)]
    assert put(pool, *transfers) == [True, True, False]
    pool.take([transfers[0].txid])
    assert put(pool, transfers[2]) == [True]


def test_there_is_room_for_so_many_bytes(chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 1) for _ in range(3)]
    pool = DisconnectedTransfers(max_bytes=2 * len(transfers[0].wire))
    assert put(pool, *transfers) == [True, True, False]
    pool.take([transfers[0].txid])
    assert put(pool, transfers[2]) == [True]


def test_those_are_tried_whose_senders_have_changed(chain: ChainBuilder) -> None:
    pool = DisconnectedTransfers()
    alices, bobs = ([chain.transfer(name, "carol", 1) for _ in range(2)] for name in ("alice", "bob"))
    put(pool, *alices, *bobs)
    assert (tried(pool), tried(pool, "bob", "dave")) == ([], bobs)
    pool.take([bobs[0].txid])
    assert tried(pool, "alice", "bob") == [*alices, bobs[1]]


def test_of_thousands_of_one_sender_only_those_are_tried_that_may_wait(chain: ChainBuilder) -> None:
    """By their nonces, in whatever order they came; those whose nonces are used are tried, and so let go."""
    pool, sender = DisconnectedTransfers(), key_of("alice").hash
    transfers = [chain.transfer("alice", "bob", 1) for _ in range(40)]
    put(pool, *reversed(transfers))

    def tried_at(nonce: int) -> list[Transfer]:
        return [item.transfer for item in pool.retry({sender: Account(nonce=nonce)})]

    assert (tried_at(0), tried_at(2)) == (transfers[:16], transfers[:18])
    pool.take([transfer.txid for transfer in transfers[:18]])
    assert (tried_at(2), tried_at(3)) == ([], transfers[18:19])
    pool.unblock({sender})
    assert tried(pool) == transfers[18:34], "with a block that has nothing of the sender"


def test_those_that_lacked_room_are_tried_by_turns(chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disconnected_module, "_UNBLOCKED_PER_BLOCK", 2)
    pool, transfers = DisconnectedTransfers(), [chain.transfer(name, "frank", 1) for name in ("alice", "bob", "dave")]
    put(pool, *transfers, crowded=True)
    assert tried(pool) == transfers[:2]
    put(pool, *transfers[:2], crowded=True)
    assert tried(pool) == [transfers[2], transfers[0]]
    put(pool, transfers[2])
    pool.take([transfers[0].txid])
    assert tried(pool) == [transfers[1]]


def test_those_are_tried_of_whose_senders_something_waits_no_longer(chain: ChainBuilder) -> None:
    pool = DisconnectedTransfers()
    alices, bobs = chain.transfer("alice", "carol", 1), chain.transfer("bob", "carol", 1)
    put(pool, alices, bobs)
    pool.unblock({key_of("alice").hash, key_of("dave").hash})
    assert tried(pool) == [alices]
