"""The door for transfers, and how they keep in step with the chain and the disk (docs/protocol.md 12)."""

import sqlite3
from collections.abc import Callable, Sequence
from hashlib import sha512
from typing import Any

import pytest
from attrs import define, evolve
from nacl.bindings import crypto_scalarmult_ed25519_base_noclamp
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import LogEvent

from svcd.chain.block import Block
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.signature import sign
from svcd.chain.transaction import Transfer
from svcd.node import transfers as transfers_module
from svcd.node.mempool import Entry
from svcd.node.transfers import Reception
from svcd.ports import milliseconds
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import LATE, Inline, Node, Stepped
from tests.node.conftest import MakeNode
from tests.node.connecting import CONNECTED
from tests.support import has_result, result_of

ExpectedErrors = Callable[..., list[LogEvent]]

ACCEPTED, KNOWN = Reception.ACCEPTED, Reception.KNOWN
DAY = TEST_PARAMS.transaction_past_seconds
_ORDER = 2**252 + 27742317777372353535851937790883648493
"""Of Ed25519's group (RFC 8032 5.1)."""


def forged(transfer: Transfer) -> Transfer:
    """The same transfer with a signature by somebody else."""
    return under(sign(key_of("forger").seed, transfer.txid), transfer)


def signed_otherwise(transfer: Transfer, *, seed: bytes) -> Transfer:
    """The same transfer with another signature of its sender: one whose R is not that of RFC 8032."""
    secret = int.from_bytes(sha512(seed).digest()[:32], "little") & ((1 << 254) - 8) | 1 << 254
    nonce = 7
    r32 = crypto_scalarmult_ed25519_base_noclamp(nonce.to_bytes(32, "little"))
    challenge = int.from_bytes(sha512(r32 + transfer.sender_key + transfer.txid).digest(), "little")
    return under(r32 + ((nonce + challenge * secret) % _ORDER).to_bytes(32, "little"), transfer)


def under(signature: bytes, transfer: Transfer) -> Transfer:
    """The same transfer under ``signature``."""
    wire = transfer.wire.replace(transfer.signature.hex().encode(), signature.hex().encode())
    return evolve(transfer, signature=signature, wire=wire)


def waiting(node: Node) -> list[bytes]:
    """The txids in the mempool, in order of arrival; those on disk are the same, and what is parked."""
    entries = node.mempool.entries()
    parked = {transfer.wire for transfer in node.transfers.parked}
    on_disk = node.store.pooled()
    assert parked <= {wire for _, wire in on_disk}
    assert [(sequence, wire) for sequence, wire in on_disk if wire not in parked] == [
        (entry.sequence, entry.transfer.wire) for entry in entries
    ]
    return [entry.transfer.txid for entry in entries]


def at_present(node: Node, chain: ChainBuilder, parent: Block | None = None) -> None:
    """Hand in a block in the present slot: then no later one can hold what is too old by the clock."""
    slot = TEST_PARAMS.slot_at(milliseconds(node.clock))
    assert node.submit(chain.block(parent, slot=slot)) == [CONNECTED]


def load(node: Node) -> int:
    return result_of(Deferred.fromCoroutine(node.transfers.load()))


# Coming in


def test_a_transfer_that_is_accepted_waits_in_memory_and_on_disk(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    assert node.send(transfer) is ACCEPTED
    assert waiting(node) == [transfer.txid]
    assert node.witness.pool == [([transfer.txid], [])]
    assert node.transfers.sequence == 1


def test_a_transfer_that_waits_is_known(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    node.send(transfer)
    assert node.send(transfer) is KNOWN
    assert node.send(forged(transfer)) is Refusal.TRANSACTION_SIGNATURE
    assert waiting(node) == [transfer.txid]
    assert len(node.witness.pool) == 1


def test_a_transfer_in_the_chain_is_known(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    node.submit(chain.block(transfers=[transfer]))
    assert node.send(transfer) is KNOWN
    assert node.send(forged(transfer)) is Refusal.TRANSACTION_SIGNATURE
    assert waiting(node) == []


@pytest.mark.parametrize("confirmed", [False, True])
def test_another_valid_signature_of_a_known_transfer(node: Node, chain: ChainBuilder, confirmed: bool) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    if confirmed:
        node.submit(chain.block(transfers=[transfer]))
    else:
        node.send(transfer)
    again = signed_otherwise(transfer, seed=key_of("alice").seed)
    assert again.wire != transfer.wire
    assert node.send(again) is KNOWN, "the id does not cover the signature"


def test_a_transfer_on_a_side_branch_is_not_known(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    node.submit(*chain.chain("genesis: b[1..3]").values(), chain.block(transfers=[transfer]))
    assert node.send(transfer) is ACCEPTED


def test_a_forged_transfer(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    assert node.send(forged(transfer)) is Refusal.TRANSACTION_SIGNATURE
    assert waiting(node) == []
    assert node.send(transfer) is ACCEPTED


@pytest.mark.parametrize(
    ("sender", "amount", "nonce", "fee", "code"),
    [
        ("dave", 5, 0, 10_000, Refusal.BALANCE),
        ("alice", 1000 * COIN, 0, 10_000, Refusal.BALANCE),
        ("alice", 5, 16, 10_000, Refusal.NONCE),
        ("bob", 5, 0, 10_999, Refusal.FEE),
    ],
)
def test_policy_is_asked_before_the_signature(
    node: Node, chain: ChainBuilder, sender: str, amount: int, nonce: int, fee: int, code: Refusal
) -> None:
    node.send(chain.transfer("bob", "alice", 1, nonce=0))
    transfer = forged(chain.transfer(sender, "carol", amount, nonce=nonce, fee=fee))
    assert node.send(transfer) is code
    assert len(waiting(node)) == 1


def test_a_nonce_that_the_chain_has_used(node: Node, chain: ChainBuilder) -> None:
    node.submit(chain.block(transfers=[chain.transfer("alice", "bob", 5)]))
    assert node.send(chain.transfer("alice", "bob", 6, nonce=0)) is Refusal.NONCE
    assert node.send(chain.transfer("alice", "bob", 6, nonce=1)) is ACCEPTED


def test_an_old_transfer(node: Node, chain: ChainBuilder) -> None:
    assert node.send(chain.transfer("alice", "bob", 5)) is ACCEPTED
    node.clock.advance(DAY - LATE)
    at_present(node, chain)
    assert node.send(chain.transfer("alice", "bob", 5)) is ACCEPTED
    node.clock.advance(0.001)
    assert node.send(chain.transfer("alice", "bob", 5)) is Refusal.TIMESTAMP


def test_an_old_transfer_that_the_next_block_may_hold(node: Node, chain: ChainBuilder) -> None:
    """Blocks on demand follow the tip, however far the clock is ahead of it."""
    node.send(chain.transfer("alice", "bob", 5))
    node.clock.advance(9 * DAY)
    assert node.send(chain.transfer("alice", "bob", 5)) is ACCEPTED
    node.transfers.expire()
    node.settle()
    assert len(waiting(node)) == 2


def test_a_replacement_takes_the_place_on_disk_too(node: Node, chain: ChainBuilder) -> None:
    first, second = (chain.transfer("alice", "bob", 5, nonce=0, fee=fee) for fee in (10_000, 11_000))
    node.send(first)
    assert node.send(second) is ACCEPTED
    assert waiting(node) == [second.txid]
    assert node.witness.pool[-1] == ([second.txid], [first.txid])


def test_an_eviction_is_one_on_disk_too(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node(max_transactions=1)
    cheap, dear = chain.transfer("alice", "bob", 5), chain.transfer("bob", "alice", 5, fee=20_000)
    node.send(cheap)
    assert node.send(dear) is ACCEPTED
    assert waiting(node) == [dear.txid]
    assert node.send(cheap) is Refusal.POOL


# While it is being verified


@define
class Bench:
    """A node whose threads work when the test says so."""

    node: Node
    checker: Stepped
    writer: Stepped

    def finish(self) -> None:
        while len(self.checker) or len(self.writer):
            self.checker.finish()
            self.writer.finish()


@pytest.fixture
def bench(make_node: MakeNode) -> Bench:
    checker, writer = Stepped(), Stepped()
    return Bench(make_node(checker=checker, writer=writer), checker, writer)


def test_the_same_transfer_twice_at_once(bench: Bench, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    both = [bench.node.transfers.submit(transfer) for _ in range(2)]
    bench.finish()
    assert [result_of(reception) for reception in both] == [ACCEPTED, KNOWN]
    assert waiting(bench.node) == [transfer.txid]


def test_the_same_nonce_twice_at_once(bench: Bench, chain: ChainBuilder) -> None:
    pair = [chain.transfer("alice", "bob", amount, nonce=0) for amount in (5, 6)]
    first, second = (bench.node.transfers.submit(transfer) for transfer in pair)
    bench.finish()
    assert result_of(first) is ACCEPTED
    with pytest.raises(RuleViolation) as refusal:
        result_of(second)
    assert refusal.value.code is Refusal.FEE
    assert waiting(bench.node) == [pair[0].txid]


@pytest.mark.parametrize("same", [True, False])
def test_a_block_that_comes_meanwhile(bench: Bench, chain: ChainBuilder, same: bool) -> None:
    transfer = chain.transfer("alice", "bob", 5, nonce=0)
    held = transfer if same else chain.transfer("alice", "bob", 6, nonce=0)
    reception = bench.node.transfers.submit(transfer)
    verification = bench.checker._jobs.pop()
    bench.node.ledger.submit_blocks([chain.block(transfers=[held]).wire()])
    bench.finish()
    assert bench.node.ledger.tip.height == 1
    bench.checker._jobs.append(verification)
    bench.finish()
    if same:
        assert result_of(reception) is KNOWN
    else:
        with pytest.raises(RuleViolation) as refusal:
            result_of(reception)
        assert refusal.value.code is Refusal.NONCE
    assert waiting(bench.node) == []


def test_acceptance_means_that_it_is_on_disk(bench: Bench, chain: ChainBuilder) -> None:
    reception = bench.node.transfers.submit(chain.transfer("alice", "bob", 5))
    bench.checker.finish()
    assert not has_result(reception)
    assert bench.node.witness.pool == [], "nobody hears of it before"
    bench.writer.step()
    assert result_of(reception) is ACCEPTED
    assert len(waiting(bench.node)) == 1


def test_known_means_that_it_is_on_disk(bench: Bench, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    bench.node.transfers.submit(transfer)
    bench.checker.finish()
    again = bench.node.transfers.submit(transfer)
    assert not has_result(again)
    bench.writer.step()
    assert result_of(again) is KNOWN


def test_a_known_transfer_that_cannot_be_written(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk = Stepped()
    node = make_node(writer=disk)
    receptions = [node.transfers.submit(transfer) for transfer in [chain.transfer("alice", "bob", 5)] * 2]
    disk.fail(DISK_FULL)
    assert all(map(failed, receptions))
    assert waiting(node) == []


def test_what_a_block_takes_while_it_is_being_written_is_not_said_to_come(bench: Bench, chain: ChainBuilder) -> None:
    """The block's commit is before the transfer's in the one thread that writes."""
    transfer = chain.transfer("alice", "bob", 5)
    bench.node.ledger.submit_blocks([chain.block(transfers=[transfer]).wire()])
    while not len(bench.writer):
        bench.checker.step()
    reception = bench.node.transfers.submit(transfer)
    bench.checker.finish()
    bench.finish()
    assert result_of(reception) is ACCEPTED
    assert bench.node.witness.pool == [([], [transfer.txid])]
    assert waiting(bench.node) == []


def test_many_transfers_share_few_commits(bench: Bench, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(16)]
    receptions = [bench.node.transfers.submit(transfer) for transfer in transfers]
    bench.checker.finish()
    commits = 0
    while len(bench.writer):
        bench.writer.step()
        commits += 1
    assert commits == 2
    assert [result_of(reception) for reception in receptions] == [ACCEPTED] * 16
    assert waiting(bench.node) == [transfer.txid for transfer in transfers]


def test_a_sender_that_goes_away_does_not_stop_the_work(bench: Bench, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    reception = bench.node.transfers.submit(transfer)
    reception.cancel()
    with pytest.raises(CancelledError):
        result_of(reception)
    bench.finish()
    assert waiting(bench.node) == [transfer.txid]
    assert bench.node.witness.pool == [([transfer.txid], [])]


def test_a_sender_that_goes_away_in_the_middle(bench: Bench, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    reception = bench.node.transfers.submit(transfer)
    bench.checker.finish()
    reception.cancel()
    with pytest.raises(CancelledError):
        result_of(reception)
    bench.finish()
    assert waiting(bench.node) == [transfer.txid]


# A disk that fails


class FullDisk(Inline):
    """A writer's thread whose disk is full until there is room again."""

    def __init__(self) -> None:
        self.full = False

    def run(self, function: Any, *args: Any, **kwargs: Any) -> Deferred[Any]:
        def fail() -> None:
            raise sqlite3.OperationalError("database or disk is full")

        return super().run(*((fail,) if self.full else (function, *args)), **kwargs)


def test_what_is_not_on_disk_is_not_accepted(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk = FullDisk()
    node = make_node(writer=disk)
    transfer = chain.transfer("alice", "bob", 5)
    disk.full = True
    with pytest.raises(sqlite3.OperationalError, match="full"):
        node.send(transfer)
    assert waiting(node) == []
    assert node.witness.pool == []
    disk.full = False
    assert node.send(transfer) is ACCEPTED
    assert waiting(node) == [transfer.txid]


def test_a_replacement_that_cannot_be_written(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk = FullDisk()
    node = make_node(writer=disk)
    first, second = (chain.transfer("alice", "bob", 5, nonce=0, fee=fee) for fee in (10_000, 11_000))
    node.send(first)
    disk.full = True
    with pytest.raises(sqlite3.OperationalError, match="full"):
        node.send(second)
    disk.full = False
    assert waiting(node) == [first.txid], "what was acknowledged is there, in memory and on disk"
    assert node.witness.pool == [([first.txid], [])], "nothing has happened"
    node.send(chain.transfer("bob", "alice", 5))
    assert waiting(node)[0] == first.txid, "nor does it go with the next change"
    assert node.send(second) is ACCEPTED
    assert node.witness.pool[-1] == ([second.txid], [first.txid])


def test_an_eviction_that_cannot_be_written(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk = FullDisk()
    node = make_node(writer=disk, max_transactions=1)
    cheap, dear = chain.transfer("alice", "bob", 5), chain.transfer("bob", "alice", 5, fee=20_000)
    node.send(cheap)
    disk.full = True
    with pytest.raises(sqlite3.OperationalError, match="full"):
        node.send(dear)
    disk.full = False
    assert waiting(node) == [cheap.txid]


DISK_FULL = sqlite3.OperationalError("database or disk is full")


@define
class Replacing:
    """A transfer that waits, and two replacements under way, one after the other."""

    node: Node
    disk: Stepped
    transfers: list[Transfer]
    receptions: list[Deferred[Reception]]


@pytest.fixture
def replacing(make_node: MakeNode, chain: ChainBuilder) -> Replacing:
    disk = Stepped()
    node = make_node(writer=disk)
    transfers = [chain.transfer("alice", "bob", 5, nonce=0, fee=fee) for fee in (10_000, 20_000, 30_000)]
    node.transfers.submit(transfers[0])
    disk.step()
    return Replacing(node, disk, transfers, [node.transfers.submit(transfer) for transfer in transfers[1:]])


def failed(reception: Deferred[Reception]) -> bool:
    with pytest.raises(sqlite3.OperationalError, match="full"):
        result_of(reception)
    return True


def test_two_replacements_that_cannot_be_written(replacing: Replacing) -> None:
    replacing.disk.fail(DISK_FULL)
    assert replacing.node.mempool.get(replacing.transfers[2].txid), "the second one is still under way"
    replacing.disk.fail(DISK_FULL)
    assert all(map(failed, replacing.receptions))
    assert waiting(replacing.node) == [replacing.transfers[0].txid]


def test_a_replacement_of_one_that_could_not_be_written(replacing: Replacing) -> None:
    replacing.disk.fail(DISK_FULL)
    replacing.disk.finish()
    assert failed(replacing.receptions[0])
    assert result_of(replacing.receptions[1]) is ACCEPTED
    txids = [transfer.txid for transfer in replacing.transfers]
    assert waiting(replacing.node) == [txids[2]]
    assert replacing.node.witness.pool == [([txids[0]], []), ([], [txids[0]]), ([txids[2]], [])]


def test_two_replacements_in_a_commit_that_fails(make_node: MakeNode, chain: ChainBuilder) -> None:
    disk = Stepped()
    node = make_node(writer=disk)
    transfers = [chain.transfer("alice", "bob", 5, nonce=0, fee=fee) for fee in (10_000, 20_000, 30_000)]
    node.transfers.submit(transfers[0])
    disk.step()
    node.transfers.submit(chain.transfer("bob", "alice", 5))
    receptions = [node.transfers.submit(transfer) for transfer in transfers[1:]]
    disk.step()
    disk.fail(DISK_FULL)
    assert all(map(failed, receptions))
    assert transfers[0].txid in waiting(node)
    assert len(waiting(node)) == 2


# In step with the chain


def test_what_a_block_holds_waits_no_longer(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", amount) for amount in (1, 2, 3)]
    for transfer in transfers:
        node.send(transfer)
    node.submit(chain.block(transfers=transfers[:2]))
    assert waiting(node) == [transfers[2].txid]
    assert node.witness.pool[-1] == ([], [transfers[0].txid, transfers[1].txid])


def test_what_a_block_rules_out_waits_no_longer(node: Node, chain: ChainBuilder) -> None:
    node.send(chain.transfer("alice", "bob", 5, nonce=0))
    node.send(chain.transfer("bob", "alice", 999 * COIN, nonce=1))
    rival, spent = chain.transfer("alice", "bob", 6, nonce=0), chain.transfer("bob", "carol", 2 * COIN, nonce=0)
    node.submit(chain.block(transfers=[rival, spent]))
    assert waiting(node) == []


def two_branches(
    chain: ChainBuilder, old: Sequence[Transfer], new: Sequence[Transfer]
) -> tuple[list[Block], list[Block]]:
    """A block for each of the old transfers, and a heavier branch that begins with the new ones."""
    branches: tuple[list[Block], list[Block]] = ([], [])
    for transfer in old:
        branches[0].append(chain.block(branches[0][-1] if branches[0] else None, producer="o", transfers=[transfer]))
    branches[1].append(chain.block(producer="n", transfers=new))
    while len(branches[1]) <= len(branches[0]):
        branches[1].append(chain.block(branches[1][-1], producer="n"))
    return branches


def reorganise(node: Node, old: Sequence[Block], new: Sequence[Block]) -> None:
    node.submit(*old)
    assert node.tip == old[-1].header.hash
    assert node.submit(*new)[-1] is CONNECTED
    node.settle()


def test_transfers_of_undone_blocks_wait_again_in_their_order(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer(sender, "dave", 5) for sender in ("alice", "bob", "alice", "alice")]
    later = chain.transfer("alice", "dave", 5)
    old, new = two_branches(chain, transfers, [])
    node.submit(*old)
    node.send(later)
    reorganise(node, old, new)
    assert waiting(node) == [later.txid, *(transfer.txid for transfer in transfers)]
    block = chain.block(new[-1], transfers=[*transfers, later])
    node.submit(block)
    assert waiting(node) == []


def test_transfers_that_both_branches_hold_do_not_wait(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5), chain.transfer("bob", "alice", 5)]
    old, new = two_branches(chain, transfers, transfers[1:])
    reorganise(node, old, new)
    assert waiting(node) == [transfers[0].txid]


def test_transfers_that_the_new_branch_rules_out_are_let_go(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5, nonce=0), chain.transfer("bob", "alice", 5, nonce=0)]
    old, new = two_branches(chain, transfers, [chain.transfer("alice", "carol", 5, nonce=0)])
    reorganise(node, old, new)
    assert waiting(node) == [transfers[1].txid]


def test_transfers_that_have_become_too_old_are_let_go(node: Node, chain: ChainBuilder) -> None:
    fresh = chain.transfer("bob", "alice", 5, timestamp=TEST_PARAMS.genesis_time + 400_000)
    old, new = two_branches(chain, [chain.transfer("alice", "bob", 5), fresh], [])
    node.submit(*old)
    node.clock.advance(DAY - LATE + 1)
    reorganise(node, old, [*new, chain.block(new[-1], slot=DAY + 1)])
    assert waiting(node) == [fresh.txid]


def test_transfers_that_come_back_are_not_verified_again(
    node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = two_branches(chain, [chain.transfer("alice", "bob", 5)], [])
    checked: list[Transfer] = []
    node.submit(*old)
    monkeypatch.setattr(Transfer, "check_signature", checked.append)
    reorganise(node, old, new)
    assert len(waiting(node)) == 1
    assert checked == []


def test_transfers_that_were_sent_again_meanwhile(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    old, new = two_branches(chain, [transfer], [])
    node.submit(*old)
    node.submit(*new)
    assert node.send(transfer) is ACCEPTED
    node.settle()
    assert waiting(node) == [transfer.txid]


def test_two_reorganisations_at_once(node: Node, chain: ChainBuilder) -> None:
    """The transfers of the first have not all come back when the second one comes."""
    transfers = [chain.transfer("alice", "bob", amount) for amount in range(1, 9)]
    old, new = two_branches(chain, transfers, [])
    node.submit(*old)
    node.submit(*new)
    first = chain.block(old[-1])
    second = chain.block(first)
    node.submit(first, second)
    assert node.tip == second.header.hash
    while node.clock.getDelayedCalls():
        node.clock.advance(0)
    assert waiting(node) == []


def test_settled_means_that_everything_has_come_back(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", amount) for amount in range(1, 9)]
    other = chain.transfer("bob", "alice", 9)
    old, new = two_branches(chain, transfers, [])
    last = chain.block(new[-1], transfers=[other])
    newest, _ = two_branches(chain, [chain.transfer("carol", "bob", 1, nonce=n) for n in range(12)], [])
    node.submit(*old)
    node.submit(*new, last)
    assert node.submit(*newest)[-1] is CONNECTED
    node.settle()
    assert waiting(node) == [transfer.txid for transfer in [*transfers, other]]


def test_nothing_comes_back_where_nothing_was_undone(node: Node) -> None:
    node.settle()
    assert waiting(node) == []


def test_a_disk_that_is_full_when_transfers_come_back(
    make_node: MakeNode, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    disk = FullDisk()
    node = make_node(writer=disk)
    old, new = two_branches(chain, [chain.transfer("alice", "bob", 5)], [])
    node.submit(*old)
    node.submit(*new)
    disk.full = True
    while node.clock.getDelayedCalls():
        node.clock.advance(0)
    assert len(expected_errors(sqlite3.OperationalError)) == 1
    disk.full = False
    assert waiting(node) == []
    node.submit(chain.block(new[-1]))
    node.settle()
    assert waiting(node) == [old[0].transfers[0].txid], "the next block is another chance"


# What a reorganisation leaves without cover


def two_hops(chain: ChainBuilder) -> tuple[Transfer, Transfer, list[Block], list[Block]]:
    """Alice pays dave and then dave pays erin, a block each; and an empty branch that is heavier."""
    first, second = chain.transfer("alice", "dave", COIN), chain.transfer("dave", "erin", COIN // 2)
    return (first, second, *two_branches(chain, [first, second], []))


def parked(node: Node) -> list[bytes]:
    return [transfer.txid for transfer in node.transfers.parked]


def test_a_transfer_whose_cover_was_undone_comes_back_with_it(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    assert (waiting(node), parked(node)) == ([first.txid], [second.txid])
    third = chain.block(new[-1], transfers=[first])
    node.submit(third)
    node.settle()
    assert (waiting(node), parked(node)) == ([second.txid], [])
    node.submit(chain.block(third, transfers=[second]))
    assert (waiting(node), parked(node)) == ([], [])
    assert all(node.store.transaction(transfer.txid) for transfer in (first, second))


def test_what_is_parked_is_written_down(node: Node, chain: ChainBuilder) -> None:
    """A removal of before, when a block held it, may be written after the commit that undid the block."""
    _, second, old, new = two_hops(chain)
    node.submit(*old)
    node.submit(*new)
    with node.store.commit():
        node.store.write_pool([], [second.txid])
    node.settle()
    assert parked(node) == [second.txid]
    assert second.wire in {wire for _, wire in node.store.pooled()}


def test_what_is_parked_waits_for_nobody(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    assert node.witness.pool[-1] == ([first.txid], [])
    assert node.mempool.get(second.txid) is None
    assert node.send(second) is Refusal.BALANCE


def test_what_waited_on_an_undone_payment_is_parked_too(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    later = [chain.transfer("dave", "erin", 5) for _ in range(2)]
    node.submit(*old)
    for transfer in later:
        node.send(transfer)
    reorganise(node, old, new)
    assert (waiting(node), parked(node)) == ([first.txid], [transfer.txid for transfer in (second, *later)])
    third = chain.block(new[-1], transfers=[first, second])
    node.submit(third)
    node.settle()
    assert (waiting(node), parked(node)) == ([transfer.txid for transfer in later], [])


def test_what_has_lost_its_cover_never_leaves_the_disk(node: Node, chain: ChainBuilder) -> None:
    _, second, old, new = two_hops(chain)
    later = chain.transfer("dave", "erin", 5)
    node.submit(*old)
    node.send(later)
    node.submit(*new)
    assert later.txid not in node.mempool
    assert {second.wire, later.wire} <= {wire for _, wire in node.store.pooled()}


def test_what_another_payment_of_the_sender_leaves_uncovered_is_not_parked(node: Node, chain: ChainBuilder) -> None:
    node.send(chain.transfer("alice", "bob", 600 * COIN, nonce=1))
    node.submit(chain.block(transfers=[chain.transfer("alice", "bob", 600 * COIN, nonce=0)]))
    node.settle()
    assert (waiting(node), parked(node)) == ([], [])


def test_more_nonces_than_may_wait_are_parked(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(18)]
    old, new = chain.block(producer="o", transfers=transfers), [chain.block(producer="n")]
    new.append(chain.block(new[0], producer="n"))
    reorganise(node, [old], new)
    txids = [transfer.txid for transfer in transfers]
    assert (waiting(node), parked(node)) == (txids[:16], txids[16:])
    node.submit(chain.block(new[1], transfers=transfers[:2]))
    node.settle()
    assert (waiting(node), parked(node)) == (txids[2:], [])


def test_what_is_parked_is_let_go_when_its_nonce_is_used(node: Node, chain: ChainBuilder) -> None:
    first, _, old, new = two_hops(chain)
    reorganise(node, old, new)
    other = chain.transfer("dave", "alice", 7, nonce=0)
    node.submit(chain.block(new[-1], transfers=[first, other]))
    node.settle()
    assert (waiting(node), parked(node)) == ([], [])


def test_what_is_parked_is_let_go_when_it_expires(node: Node, chain: ChainBuilder) -> None:
    _, _, old, new = two_hops(chain)
    reorganise(node, old, new)
    node.clock.advance(DAY - LATE - 1)
    at_present(node, chain, new[-1])
    node.settle()
    assert len(parked(node)) == 1
    node.clock.advance(2)
    node.transfers.expire()
    node.settle()
    assert (waiting(node), parked(node)) == ([], [])


def test_what_is_parked_can_be_dropped(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    node.transfers.drop([second.txid])
    assert (waiting(node), parked(node)) == ([first.txid], [])


def test_what_is_parked_is_kept_across_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    node.close()
    again = make_node()
    assert load(again) == 1
    assert (waiting(again), parked(again)) == ([first.txid], [second.txid])
    again.submit(chain.block(new[-1], transfers=[first]))
    again.settle()
    assert (waiting(again), parked(again)) == ([second.txid], [])


def test_a_crash_after_the_commit_that_undid_them(make_node: MakeNode, chain: ChainBuilder) -> None:
    """Nothing of what is taken back afterwards has happened: what is on disk has no place in the order yet."""
    node = make_node()
    first, second, old, new = two_hops(chain)
    node.submit(*old)
    earlier = chain.transfer("bob", "alice", 1)
    node.send(earlier)
    node.submit(*new)
    assert [sequence for sequence, _ in node.store.pooled()] == [0, 0, 1]
    node.close()
    again = make_node()
    assert load(again) == 2
    assert (waiting(again), parked(again)) == ([earlier.txid, first.txid], [second.txid])
    assert again.transfers.sequence >= 2


# Time and the operator


def test_expired_transfers_leave_memory_and_disk(node: Node, chain: ChainBuilder) -> None:
    old = chain.transfer("alice", "bob", 5)
    new = chain.transfer("bob", "alice", 5, timestamp=TEST_PARAMS.genesis_time + 1)
    for transfer in (old, new):
        node.send(transfer)
    node.transfers.expire()
    node.settle()
    assert waiting(node) == [old.txid, new.txid]
    node.clock.advance(DAY - LATE)
    at_present(node, chain)
    node.clock.advance(0.001)
    node.transfers.expire()
    node.settle()
    assert waiting(node) == [new.txid]
    assert node.witness.pool[-1] == ([], [old.txid])


def test_expired_transfers_leave_in_steps(node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers_module, "_AT_ONCE", 2)
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(5)]
    for transfer in transfers:
        node.send(transfer)
    node.clock.advance(2 * DAY)
    at_present(node, chain)
    told = len(node.witness.pool)
    node.transfers.expire()
    node.transfers.expire()
    assert len(node.mempool) == 5, "the reactor goes first"
    node.settle()
    assert waiting(node) == []
    assert [len(removed) for _, removed in node.witness.pool[told:]] == [2, 2, 1]


def test_the_operator_drops_transfers(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(3)]
    for transfer in transfers:
        node.send(transfer)
    node.transfers.drop([transfers[1].txid, bytes(32)])
    assert waiting(node) == [transfers[0].txid, transfers[2].txid]
    told = len(node.witness.pool)
    node.transfers.drop([bytes(32)])
    assert len(node.witness.pool) == told, "nothing happened"


# Across a restart


def test_what_waits_is_kept_across_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    transfers = [chain.transfer(sender, "carol", 5) for sender in ("alice", "bob", "alice")]
    for transfer in transfers:
        node.send(transfer)
    node.transfers.drop([transfers[0].txid])
    node.close()
    again = make_node()
    assert load(again) == 2
    assert waiting(again) == [transfers[1].txid, transfers[2].txid]
    assert [entry.sequence for entry in again.mempool.entries()] == [2, 3]
    first = again.transfers.sequence
    again.send(transfers[0])
    assert waiting(again) == [transfers[1].txid, transfers[2].txid, transfers[0].txid]
    assert again.transfers.sequence == first + 1


def test_an_empty_pool_across_a_restart(make_node: MakeNode) -> None:
    node = make_node()
    assert load(node) == 0
    assert node.transfers.sequence == node.clock.seconds() * 1_000_000


def test_a_number_of_an_earlier_run_never_comes_again(make_node: MakeNode, chain: ChainBuilder) -> None:
    """Whoever asks for what came after one of before the restart misses nothing, however much has come meanwhile."""
    node = make_node()
    load(node)
    sent = [chain.transfer("alice", "carol", 5) for _ in range(3)]
    for transfer in sent:
        node.send(transfer)
    cursor = node.transfers.sequence
    node.transfers.drop([transfer.txid for transfer in sent[1:]])
    node.close()
    node.clock.advance(0.001)
    again = make_node(clock=node.clock)
    load(again)
    later = [chain.transfer("bob", "carol", 5) for _ in range(4)]
    for transfer in later:
        again.send(transfer)
    assert [entry.transfer.txid for entry in again.mempool.since(cursor, 9)] == [new.txid for new in later]


def test_what_may_no_longer_wait_is_let_go_after_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    used, kept = chain.transfer("alice", "bob", 5), chain.transfer("bob", "alice", 5)
    forgery = forged(chain.transfer("carol", "bob", 5))
    entries = [Entry(transfer, number) for number, transfer in enumerate((used, kept, forgery), 1)]
    node.submit(chain.block(transfers=[used]))
    with node.store.commit():
        node.store.write_pool([(entry.sequence, entry.transfer) for entry in entries], [])
    node.close()
    again = make_node()
    assert load(again) == 1
    assert waiting(again) == [kept.txid]


def test_what_has_expired_is_let_go_after_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    node.send(chain.transfer("alice", "bob", 5))
    node.close()
    again = make_node()
    again.clock.advance(DAY)
    at_present(again, chain)
    assert load(again) == 0
    assert waiting(again) == []


def test_what_builds_on_a_replacement_is_kept_across_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    """One in ten may wait behind a gap: none of these do."""
    node = make_node(max_transactions=10)
    transfers = [chain.transfer("alice", "bob", 5, nonce=nonce) for nonce in range(4)]
    for transfer in [*transfers, chain.transfer("alice", "bob", 5, nonce=0, fee=20_000)]:
        node.send(transfer)
    before = waiting(node)
    node.close()
    again = make_node(max_transactions=10)
    assert load(again) == 4
    assert waiting(again) == before


def test_a_smaller_pool_after_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    transfers = [
        chain.transfer(name, "dave", 5, fee=fee)
        for name, fee in {"alice": 10_000, "bob": 30_000, "carol": 20_000}.items()
    ]
    for transfer in transfers:
        node.send(transfer)
    node.close()
    again = make_node(max_transactions=2)
    assert load(again) == 2
    assert waiting(again) == [transfers[1].txid, transfers[2].txid]


# Listeners


@define
class Onlooker:
    """A listener that does what the test says."""

    look: Callable[[Sequence[Entry], Sequence[Entry]], object]

    def pool_changed(self, added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        self.look(added, removed)


def test_listeners_are_told_after_the_commit(node: Node, chain: ChainBuilder) -> None:
    seen: list[int] = []
    node.transfers.subscribe(Onlooker(lambda added, removed: seen.append(len(node.ledger.reader.pooled()))))
    node.send(chain.transfer("alice", "bob", 5))
    node.send(chain.transfer("alice", "bob", 5))
    assert seen == [1, 2]


def test_a_failing_listener_does_not_silence_the_next(
    node: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    told: list[int] = []

    def fail(added: Sequence[Entry], removed: Sequence[Entry]) -> None:
        raise ZeroDivisionError("a bug in a listener")

    node.transfers.subscribe(Onlooker(fail))
    node.transfers.subscribe(Onlooker(lambda added, removed: told.append(len(added))))
    assert node.send(chain.transfer("alice", "bob", 5)) is ACCEPTED
    assert told == [1]
    assert len(expected_errors(ZeroDivisionError)) == 1
