"""What is kept aside until a later block covers it (docs/protocol.md 10, 12)."""

import pytest

from svcd.chain.accounts import Account
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.transaction import Transfer
from svcd.node import aside as aside_module
from svcd.node.aside import Aside, Kept, may_come_later
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
def test_what_a_later_block_may_mend(chain: ChainBuilder, code: Refusal, nonce: int, mended: bool) -> None:
    transfer = chain.transfer("alice", "bob", 1, nonce=nonce)
    assert may_come_later(RuleViolation(code, "no"), transfer, Account(nonce=5)) is mended


def put(aside: Aside, *transfers: Transfer, crowded: bool = False) -> list[bool]:
    return [aside.put(Kept(transfer, 1), crowded=crowded) for transfer in transfers]


def held(aside: Aside) -> list[Transfer]:
    return [kept.transfer for kept in aside.all()]


def tried(aside: Aside, *names: str) -> list[Transfer]:
    return [kept.transfer for kept in aside.to_be_tried({key_of(name).hash: Account() for name in names})]


def test_what_is_put_is_there_until_it_is_taken(chain: ChainBuilder) -> None:
    aside, transfers = Aside(), [chain.transfer("alice", "bob", 1) for _ in range(3)]
    assert put(aside, *transfers, transfers[0]) == [True] * 4
    assert held(aside) == transfers
    taken = aside.take([transfers[1].txid, transfers[1].txid, bytes(32)])
    assert [kept.transfer for kept in taken] == [transfers[1]]
    assert held(aside) == [transfers[0], transfers[2]]
    assert (transfers[0].txid in aside, transfers[1].txid in aside, len(aside)) == (True, False, 2)
    assert [kept.transfer for kept in aside.get([transfer.txid for transfer in transfers])] == held(aside)


def test_there_is_room_for_so_many(chain: ChainBuilder) -> None:
    aside, transfers = Aside(max_transfers=2), [chain.transfer("alice", "bob", 1) for _ in range(3)]
    assert put(aside, *transfers) == [True, True, False]
    aside.take([transfers[0].txid])
    assert put(aside, transfers[2]) == [True]


def test_there_is_room_for_so_many_bytes(chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 1) for _ in range(3)]
    aside = Aside(max_bytes=2 * len(transfers[0].wire))
    assert put(aside, *transfers) == [True, True, False]
    aside.take([transfers[0].txid])
    assert put(aside, transfers[2]) == [True]


def test_those_are_tried_whose_senders_have_changed(chain: ChainBuilder) -> None:
    aside = Aside()
    alices, bobs = ([chain.transfer(name, "carol", 1) for _ in range(2)] for name in ("alice", "bob"))
    put(aside, *alices, *bobs)
    assert (tried(aside), tried(aside, "bob", "dave")) == ([], bobs)
    aside.take([bobs[0].txid])
    assert tried(aside, "alice", "bob") == [*alices, bobs[1]]


def test_of_thousands_of_one_sender_only_those_are_tried_that_may_wait(chain: ChainBuilder) -> None:
    """By their nonces, in whatever order they came; those whose nonces are used are tried, and so let go."""
    aside, sender = Aside(), key_of("alice").hash
    transfers = [chain.transfer("alice", "bob", 1) for _ in range(40)]
    put(aside, *reversed(transfers))

    def tried_at(nonce: int) -> list[Transfer]:
        return [kept.transfer for kept in aside.to_be_tried({sender: Account(nonce=nonce)})]

    assert (tried_at(0), tried_at(2)) == (transfers[:16], transfers[:18])
    aside.take([transfer.txid for transfer in transfers[:18]])
    assert (tried_at(2), tried_at(3)) == ([], transfers[18:19])
    aside.ease({sender})
    assert tried(aside) == transfers[18:34], "with a block that has nothing of the sender"


def test_those_that_lacked_room_are_tried_by_turns(chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside_module, "_EASED_AT_ONCE", 2)
    aside, transfers = Aside(), [chain.transfer(name, "frank", 1) for name in ("alice", "bob", "dave")]
    put(aside, *transfers, crowded=True)
    assert tried(aside) == transfers[:2]
    put(aside, *transfers[:2], crowded=True)
    assert tried(aside) == [transfers[2], transfers[0]]
    put(aside, transfers[2])
    aside.take([transfers[0].txid])
    assert tried(aside) == [transfers[1]]


def test_those_are_tried_of_whose_senders_something_waits_no_longer(chain: ChainBuilder) -> None:
    aside = Aside()
    alices, bobs = chain.transfer("alice", "carol", 1), chain.transfer("bob", "carol", 1)
    put(aside, alices, bobs)
    aside.ease({key_of("alice").hash, key_of("dave").hash})
    assert tried(aside) == [alices]
