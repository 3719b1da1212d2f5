"""The door for transfers, and how they keep in step with the chain and the disk (docs/protocol.md 12)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha512
from typing import Any

import pytest
from attrs import define, evolve
from nacl.bindings import crypto_scalarmult_ed25519_base_noclamp
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from svcd.chain.block import Block
from svcd.chain.errors import Refusal, RuleViolation
from svcd.chain.signature import sign
from svcd.chain.transaction import Transfer
from svcd.interfaces import milliseconds
from svcd.node import chainstate, pending_change
from svcd.node import transaction_pool as pool_module
from svcd.node.changes import CheckedBlock
from svcd.node.disconnected_transfers import DisconnectedTransfers
from svcd.node.mempool import Mempool, MempoolEntry, RemovalReason, Removals
from svcd.node.transaction_pool import SubmitResult
from svcd.node.verifier import Verifier
from svcd.store import mempool_journal
from svcd.store.chain_store import ChainWriter
from svcd.store.database import DatabaseError, DiskError
from svcd.store.mempool_journal import MempoolJournal
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import LATE, Node, Stepped
from tests.node.conftest import MakeNode
from tests.node.connecting import CONNECTED
from tests.store.statements import trace
from tests.support import has_result, result_of

ExpectedErrors = Callable[..., list[LogEvent]]

ACCEPTED, KNOWN = SubmitResult.ACCEPTED, SubmitResult.KNOWN
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
    """The txids in the mempool, in order of arrival; those on disk are the same, and what is kept aside."""
    node.settle()
    entries, written = node.mempool.entries(), node.written()
    aside = {transfer.wire for transfer in node.transaction_pool.parked}
    assert aside <= {transfer.wire for transfer in written.values()}
    assert {number: transfer.wire for number, transfer in written.items() if transfer.wire not in aside} == {
        entry.sequence: entry.transfer.wire for entry in entries
    }
    assert node.store.disconnected() == [], "our own file has it"
    return [entry.transfer.txid for entry in entries]


def at_present(node: Node, chain: ChainBuilder, parent: Block | None = None) -> None:
    """Hand in a block in the present slot: then no later one can hold what is too old by the clock."""
    slot = TEST_PARAMS.slot_at(milliseconds(node.clock))
    assert node.submit(chain.block(parent, slot=slot)) == [CONNECTED]


def load(node: Node) -> int:
    return result_of(Deferred.fromCoroutine(node.transaction_pool.load()))


# Coming in


def test_a_transfer_that_is_accepted_waits_in_memory_and_on_disk(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    assert node.send(transfer) is ACCEPTED
    assert waiting(node) == [transfer.txid]
    assert node.witness.pool == [([transfer.txid], [])]
    (entry,) = node.mempool.entries()
    assert entry.sequence == node.transaction_pool.sequence == node.clock.seconds() * 1_000_000
    assert entry.arrival == node.clock.seconds() * 1_000


@pytest.mark.parametrize("confirmed", [False, True])
def test_a_transfer_that_waits_or_is_in_the_chain_is_known(node: Node, chain: ChainBuilder, confirmed: bool) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    if confirmed:
        node.submit(chain.block(transfers=[transfer]))
    else:
        node.send(transfer)
    again = signed_otherwise(transfer, seed=key_of("alice").seed)
    assert again.wire != transfer.wire
    assert [node.send(transfer), node.send(again)] == [KNOWN, KNOWN], "the id does not cover the signature"
    assert node.send(forged(transfer)) is Refusal.TRANSACTION_SIGNATURE
    assert waiting(node) == ([] if confirmed else [transfer.txid])
    assert len(node.witness.pool) == (not confirmed)


def test_a_transfer_on_a_side_branch_is_not_known(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    node.submit(*chain.chain("genesis: b[1..3]").values(), chain.block(transfers=[transfer]))
    assert node.send(transfer) is ACCEPTED


def test_a_forged_transfer(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    assert node.send(forged(transfer)) is Refusal.TRANSACTION_SIGNATURE
    assert waiting(node) == []
    assert node.send(transfer) is ACCEPTED


@pytest.fixture
def reads(node: Node) -> list[str]:
    """The statements that have read the chain's database since the test began."""
    asked: list[str] = []
    trace(node.connections[1], asked.append)
    return asked


@pytest.mark.parametrize(
    ("sender", "amount", "nonce"),
    [("alice", COIN, 0), ("alice", COIN, 17), ("alice", 1000 * COIN, 1), ("dave", COIN, 0)],
)
def test_for_a_forged_transfer_nothing_is_read_from_the_disk(
    node: Node, chain: ChainBuilder, reads: list[str], sender: str, amount: int, nonce: int
) -> None:
    node.submit(chain.block(transfers=[chain.transfer("alice", "bob", 2 * COIN, nonce=0)]))
    reads.clear()
    assert node.send(forged(chain.transfer(sender, "bob", amount, nonce=nonce))) is Refusal.TRANSACTION_SIGNATURE
    assert reads == []
    assert waiting(node) == []


def test_a_client_is_charged_for_each_used_nonce_and_for_nothing_else(node: Node, chain: ChainBuilder) -> None:
    used, fresh, far = (chain.transfer("alice", "bob", COIN, nonce=nonce) for nonce in (0, 1, 17))
    other = chain.transfer("alice", "bob", 2 * COIN, nonce=0)
    node.submit(chain.block(transfers=[used]))
    charged: list[bytes] = []

    def send(transfer: Transfer) -> str:
        return node.send(transfer, on_lookup=lambda: charged.append(transfer.txid))

    assert [send(fresh), send(fresh), send(far)] == [ACCEPTED, KNOWN, Refusal.NONCE]
    assert [send(forged(used)), send(forged(other))] == [Refusal.TRANSACTION_SIGNATURE] * 2
    assert charged == []
    assert [send(used), send(used), send(other)] == [KNOWN, KNOWN, Refusal.NONCE]
    assert charged == [used.txid, used.txid, other.txid]


def test_a_used_nonce_for_which_nobody_pays_is_not_looked_up(node: Node, chain: ChainBuilder, reads: list[str]) -> None:
    used = chain.transfer("alice", "bob", COIN, nonce=0)
    node.submit(chain.block(transfers=[used]))
    reads.clear()
    reception = node.transaction_pool.submit(used)
    node.clock.advance(0)
    with pytest.raises(RuleViolation, match="nonce 0 is already used; the next one is 1"):
        result_of(reception)
    assert not [statement for statement in reads if "transfer_run" in statement]


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
    node.transaction_pool.expire()
    node.settle()
    assert len(waiting(node)) == 2


def test_a_replacement_takes_the_place_on_disk_too(node: Node, chain: ChainBuilder) -> None:
    first, second = (chain.transfer("alice", "bob", 5, nonce=0, fee=fee) for fee in (10_000, 11_000))
    node.send(first)
    assert node.send(second) is ACCEPTED
    assert waiting(node) == [second.txid]
    assert node.witness.pool[-1] == ([second.txid], [first.txid])
    assert node.witness.reasons == {first.txid: RemovalReason.REPLACED}


def test_an_eviction_is_one_on_disk_too(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node(max_transactions=1)
    cheap, dear = chain.transfer("alice", "bob", 5), chain.transfer("bob", "alice", 5, fee=20_000)
    node.send(cheap)
    assert node.send(dear) is ACCEPTED
    assert waiting(node) == [dear.txid]
    assert node.witness.reasons == {cheap.txid: RemovalReason.SIZE_LIMIT}
    assert node.send(cheap) is Refusal.POOL


# What comes in one turn


def at_once(node: Node, *transfers: Transfer) -> list[Deferred[SubmitResult]]:
    """What is told of transfers that come in one turn, when that is over."""
    receptions = [node.transaction_pool.submit(transfer, on_lookup=lambda: None) for transfer in transfers]
    assert not any(map(has_result, receptions))
    node.clock.advance(0)
    return receptions


def test_the_same_transfer_twice_at_once(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    assert list(map(result_of, at_once(node, transfer, transfer))) == [ACCEPTED, KNOWN]
    assert waiting(node) == [transfer.txid]


def test_the_same_nonce_twice_at_once(node: Node, chain: ChainBuilder) -> None:
    pair = [chain.transfer("alice", "bob", amount, nonce=0) for amount in (5, 6)]
    first, second = at_once(node, *pair)
    assert result_of(first) is ACCEPTED
    with pytest.raises(RuleViolation) as refusal:
        result_of(second)
    assert refusal.value.code is Refusal.FEE
    assert waiting(node) == [pair[0].txid]


def test_nothing_is_to_be_seen_of_a_transfer_before_the_turn_in_which_it_is_committed(
    node: Node, chain: ChainBuilder
) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    node.transaction_pool.submit(transfer)
    assert (len(node.mempool), node.mempool.since(0, 9), node.written(), node.witness.pool) == (0, [], {}, [])
    node.clock.advance(0)
    assert waiting(node) == [transfer.txid]


def test_transfers_of_one_reactor_turn_share_one_write_and_one_notification(
    make_node: MakeNode, chain: ChainBuilder
) -> None:
    journal = Stepped()
    node = make_node(journal_thread=journal)
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(8)]
    receptions = at_once(node, *transfers)
    assert len(journal) == 1
    journal.finish()
    assert [result_of(reception) for reception in receptions] == [ACCEPTED] * 8
    assert node.witness.pool == [([transfer.txid for transfer in transfers], [])]
    assert waiting(node) == [transfer.txid for transfer in transfers]


def test_nobody_hears_of_what_came_and_went_in_one_turn(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5, nonce=0, fee=fee) for fee in (10_000, 20_000, 30_000)]
    node.send(transfers[0])
    assert [result_of(reception) for reception in at_once(node, *transfers[1:])] == [ACCEPTED] * 2
    assert node.witness.pool[1:] == [([transfers[2].txid], [transfers[0].txid])]
    assert waiting(node) == [transfers[2].txid]


def test_no_turn_checks_so_many_signatures_that_a_question_waits_long(
    node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 64 clients at full speed, turns of 32 had a question wait for 25 to 40 ms on a slow machine."""
    turns, check = [0], Transfer.check_signature

    def counted(transfer: Transfer) -> None:
        turns[-1] += 1
        check(transfer)

    def begin_turn() -> None:
        turns.append(0)
        if not all(map(has_result, receptions)):
            node.clock.callLater(0, begin_turn)

    monkeypatch.setattr(Transfer, "check_signature", counted)
    transfers = [chain.transfer(name, "dave", 5) for name in ("alice", "bob", "carol") for _ in range(12)]
    receptions = [node.transaction_pool.submit(transfer) for transfer in transfers]
    begin_turn()
    node.clock.advance(0)
    assert [len(added) for added, _ in node.witness.pool] == [32, 4]
    assert [result_of(reception) for reception in receptions] == [ACCEPTED] * 36
    assert (max(turns), sum(turns)) == (8, 36)


def test_a_transfer_that_waits_is_checked_in_no_thread(make_node: MakeNode, chain: ChainBuilder) -> None:
    threads = Stepped()
    node = make_node(checker=threads, writer=threads)
    assert node.send(chain.transfer("alice", "bob", 5)) is ACCEPTED
    assert len(threads) == 0


def test_a_committed_block_that_the_mempool_has_not_heard_of(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    block = chain.block(transfers=[transfer])
    node.chainstate.connect([CheckedBlock(block, chain.head_after(block))])
    assert node.send(transfer) is KNOWN
    assert node.witness.pool == []


def test_a_sender_that_goes_away_does_not_stop_the_work(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    reception = node.transaction_pool.submit(transfer)
    reception.cancel()
    with pytest.raises(CancelledError):
        result_of(reception)
    assert waiting(node) == [transfer.txid]
    assert node.witness.pool == [([transfer.txid], [])]


# While the journal is written


@define
class Writing:
    """A node whose journal is written when the test says so."""

    node: Node
    journal: Stepped

    def submit(self, *transfers: Transfer) -> list[Deferred[SubmitResult]]:
        """What is told of transfers that are checked and not yet written."""
        receptions = at_once(self.node, *transfers)
        assert len(self.journal) == 1
        return receptions

    def settle(self) -> None:
        while len(self.journal) or self.node.clock.getDelayedCalls():
            self.journal.finish()
            self.node.clock.advance(0)


@pytest.fixture
def writing(make_node: MakeNode) -> Writing:
    journal = Stepped()
    return Writing(make_node(journal_thread=journal, max_transactions=3), journal)


def waiting_of(writing: Writing) -> list[bytes]:
    """See :func:`waiting`."""
    finished = Deferred.fromCoroutine(writing.node.transaction_pool.finished())
    writing.settle()
    assert has_result(finished)
    return waiting(writing.node)


def test_a_transfer_that_is_being_written_is_neither_shown_nor_answered(writing: Writing, chain: ChainBuilder) -> None:
    node, transfer = writing.node, chain.transfer("alice", "bob", 5)
    (reception,) = writing.submit(transfer)
    again = node.transaction_pool.submit(transfer)
    assert node.transaction_pool.has_from(transfer.sender)
    assert (len(node.mempool), node.mempool.size, node.mempool.since(0, 9), node.witness.pool) == (0, 0, [], [])
    assert node.mempool.get(transfer.txid) is None
    assert not has_result(reception)
    writing.journal.step()
    assert (result_of(reception), node.witness.pool) == (ACCEPTED, [([transfer.txid], [])])
    assert waiting_of(writing) == [transfer.txid]
    assert result_of(again) is KNOWN


def test_what_comes_while_others_are_written_is_written_together(writing: Writing, chain: ChainBuilder) -> None:
    (first,) = writing.submit(chain.transfer("alice", "bob", 5))
    later = at_once(writing.node, *(chain.transfer(name, "dave", 5) for name in ("alice", "bob")))
    assert len(writing.journal) == 1, "one write at a time"
    writing.journal.step()
    assert has_result(first)
    writing.node.clock.advance(0)
    assert len(writing.journal) == 1
    writing.journal.step()
    assert [result_of(each) for each in later] == [ACCEPTED] * 2
    assert [len(added) for added, _ in writing.node.witness.pool] == [1, 2]


def test_a_client_that_goes_away_does_not_stop_the_write(writing: Writing, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    (reception,) = writing.submit(transfer)
    reception.cancel()
    with pytest.raises(CancelledError):
        result_of(reception)
    assert waiting_of(writing) == [transfer.txid]


def test_a_block_that_includes_a_transfer_while_it_is_written(writing: Writing, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(2)]
    receptions = writing.submit(*transfers)
    writing.node.submit(chain.block(transfers=transfers[:1]))
    writing.journal.step()
    assert [result_of(reception) for reception in receptions] == [KNOWN, ACCEPTED]
    assert writing.node.witness.pool == [([transfers[1].txid], [])]
    assert waiting_of(writing) == [transfers[1].txid]


@pytest.mark.parametrize("nonce", [0, 1])
def test_a_block_that_rules_a_transfer_out_while_it_is_written(
    writing: Writing, chain: ChainBuilder, nonce: int
) -> None:
    """It uses the nonce, or spends what the transfer is to pay: no balance of before the block counts."""
    transfer = chain.transfer("alice", "bob", 600 * COIN, nonce=nonce)
    (reception,) = writing.submit(transfer)
    writing.node.submit(chain.block(transfers=[chain.transfer("alice", "carol", 600 * COIN, nonce=0)]))
    writing.journal.step()
    with pytest.raises(RuleViolation) as refusal:
        result_of(reception)
    assert refusal.value.code is (Refusal.BALANCE if nonce else Refusal.NONCE)
    assert writing.node.transaction_pool.refusals == {refusal.value.code: 1}
    assert writing.node.witness.pool == []
    assert waiting_of(writing) == [], "neither in memory nor on disk"


def test_a_transfer_that_expires_while_it_is_written(writing: Writing, chain: ChainBuilder) -> None:
    (reception,) = writing.submit(chain.transfer("alice", "bob", 5))
    writing.node.clock.advance(DAY)
    at_present(writing.node, chain)
    writing.journal.step()
    with pytest.raises(RuleViolation, match="expired"):
        result_of(reception)
    assert waiting_of(writing) == []


def test_an_eviction_is_chosen_when_the_transfer_is_written(writing: Writing, chain: ChainBuilder) -> None:
    """What was to go has gone by itself meanwhile, so that nothing else need go."""
    senders = ("alice", "bob", "carol")
    cheap = [chain.transfer(name, "dave", 5, fee=10_000 + n) for n, name in enumerate(senders)]
    writing.submit(*cheap)
    writing.settle()
    dear = chain.transfer("alice", "bob", 5, nonce=1, fee=90_000)
    (reception,) = writing.submit(dear)
    writing.node.transaction_pool.drop([cheap[1].txid])
    writing.journal.step()
    assert result_of(reception) is ACCEPTED
    assert writing.node.witness.pool[-1] == ([dear.txid], [])
    assert set(waiting_of(writing)) == {cheap[0].txid, cheap[2].txid, dear.txid}


def test_transfers_of_undone_blocks_enter_behind_those_that_are_being_written(
    writing: Writing, chain: ChainBuilder
) -> None:
    """A peer that has seen the number of one never misses one that enters later."""
    undone, other = chain.transfer("alice", "dave", 5), chain.transfer("bob", "dave", 5)
    old, new = two_branches(chain, [undone], [])
    writing.node.submit(*old)
    writing.submit(other)
    writing.node.submit(*new)
    writing.node.clock.advance(0)
    assert len(writing.journal) == 1
    assert waiting_of(writing) == [other.txid, undone.txid]
    assert writing.node.witness.pool == [([other.txid], []), ([undone.txid], [])]


def test_a_transfer_is_undone_and_included_while_it_is_written(writing: Writing, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "dave", 5)
    old, new = two_branches(chain, [transfer], [])
    (reception,) = writing.submit(transfer)
    writing.node.submit(*old)
    writing.node.submit(*new)
    writing.journal.step()
    assert result_of(reception) is ACCEPTED
    assert waiting_of(writing) == [transfer.txid]
    assert writing.node.transaction_pool.returned == {transfer.txid}


@pytest.mark.parametrize("included", [True, False])
def test_a_block_that_comes_while_undone_transfers_return(
    writing: Writing, chain: ChainBuilder, included: bool
) -> None:
    """What it includes does not return; what was refused before it, and is covered now, is not set aside."""
    first, second, old, new = two_hops(chain)
    writing.node.submit(*old)
    writing.node.submit(*new)
    writing.node.clock.advance(0)
    assert len(writing.journal) == 1
    block = chain.block(new[-1], transfers=[first, second] if included else [first])
    writing.node.submit(block)
    assert waiting_of(writing) == ([] if included else [second.txid])
    assert aside(writing.node) == []


def test_the_chain_forgets_undone_transfers_when_the_journal_is_on_the_disk(
    writing: Writing, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []

    def watch(owner: type[object], name: str) -> None:
        done = getattr(owner, name)

        def call(*args: Any) -> Any:
            order.append(name)
            return done(*args)

        monkeypatch.setattr(owner, name, call)

    watch(MempoolJournal, "write")
    watch(MempoolJournal, "sync")
    watch(ChainWriter, "forget_disconnected")
    _, _, old, new = two_hops(chain)
    writing.node.submit(*old)
    writing.node.submit(*new)
    writing.settle()
    assert order == ["write", "write", "sync", "forget_disconnected"], "what returns, what is set aside, and the rest"
    assert writing.node.store.disconnected() == []


def test_what_left_is_written_before_what_takes_its_place(make_node: MakeNode, chain: ChainBuilder) -> None:
    """Else a start after a kill would refuse the transfer that came later and was acknowledged."""
    node = make_node()
    dear, cheap = chain.transfer("alice", "bob", 5, nonce=0, fee=90_000), chain.transfer("alice", "bob", 6, nonce=0)
    node.send(dear)
    node.transaction_pool.drop([dear.txid])
    assert node.send(cheap) is ACCEPTED
    assert [transfer.txid for transfer in node.written().values()] == [cheap.txid]
    node.close()
    again = make_node()
    assert load(again) == 1
    assert waiting(again) == [cheap.txid]


def test_a_long_journal_is_rewritten_with_what_waits(
    make_node: MakeNode, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mempool_journal, "_SLACK", 8_000)
    node = make_node()
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    sizes = []
    for fee in range(60):
        assert node.send(chain.transfer("bob", "carol", 5, nonce=0, fee=10_000 * 2 ** (fee // 6) * (10 + fee % 6 * 2)))
        sizes.append(node.journal.size)
    assert max(sizes) < 13_000
    assert sizes != sorted(sizes)
    (newest,) = node.mempool.sent_by(key_of("bob").hash)
    assert (waiting(node), aside(node)) == ([first.txid, newest.transfer.txid], [second.txid])


# A flood


@define
class Bench:
    """A node whose threads check the signatures of more than two transfers, when the test says so."""

    node: Node
    checker: Stepped

    def finish(self) -> None:
        while len(self.checker) or self.node.clock.getDelayedCalls():
            self.checker.finish()
            self.node.clock.advance(0)


@pytest.fixture
def bench(make_node: MakeNode, monkeypatch: pytest.MonkeyPatch) -> Bench:
    monkeypatch.setattr(pool_module, "_FLOOD", 2)
    monkeypatch.setattr(pool_module, "_VERIFY_AT_ONCE", 4)
    checker = Stepped()
    return Bench(make_node(checker=checker), checker)


def test_a_flood_is_checked_in_threads(bench: Bench, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(6)]
    receptions = at_once(bench.node, forged(transfers[0]), *transfers)
    assert (len(bench.checker), len(bench.node.mempool)) == (1, 0)
    bench.checker.step()
    checked: list[bytes] = []
    check = Transfer.check_signature

    def counted(transfer: Transfer) -> None:
        checked.append(transfer.signature)
        check(transfer)

    monkeypatch.setattr(Transfer, "check_signature", counted)
    bench.node.clock.advance(0)
    assert checked == [], "the verifier remembers what is good, and the submission what is not"
    bench.finish()
    with pytest.raises(RuleViolation):
        result_of(receptions[0])
    assert [result_of(reception) for reception in receptions[1:]] == [ACCEPTED] * 6
    assert waiting(bench.node) == [transfer.txid for transfer in transfers]


def test_a_flood_of_forged_transfers_is_refused_by_the_threads_alone(
    bench: Bench, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    receptions = at_once(bench.node, *(forged(chain.transfer("alice", "bob", COIN)) for _ in range(4)))
    bench.checker.step()
    monkeypatch.setattr(Verifier, "check_in_this_thread", None)
    bench.finish()
    for reception in receptions:
        with pytest.raises(RuleViolation) as refusal:
            result_of(reception)
        assert refusal.value.code is Refusal.TRANSACTION_SIGNATURE


@pytest.mark.parametrize("same", [True, False])
def test_a_block_that_comes_meanwhile(bench: Bench, chain: ChainBuilder, same: bool) -> None:
    transfer = chain.transfer("alice", "bob", 5, nonce=0)
    held = transfer if same else chain.transfer("alice", "bob", 6, nonce=0)
    others = [chain.transfer("bob", "carol", 5) for _ in range(2)]
    reception, *_ = at_once(bench.node, transfer, *others)
    verification = bench.checker._jobs.pop()
    bench.node.chain_manager.submit_blocks([chain.block(transfers=[held]).wire()])
    bench.finish()
    assert bench.node.chain_manager.tip.height == 1
    bench.checker._jobs.append(verification)
    bench.finish()
    if same:
        assert result_of(reception) is KNOWN
    else:
        with pytest.raises(RuleViolation) as refusal:
            result_of(reception)
        assert refusal.value.code is Refusal.NONCE
    assert waiting(bench.node) == [other.txid for other in others]


def test_a_sender_that_goes_away_in_the_middle(bench: Bench, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(3)]
    reception, *_ = at_once(bench.node, *transfers)
    reception.cancel()
    with pytest.raises(CancelledError):
        result_of(reception)
    bench.finish()
    assert waiting(bench.node) == [transfer.txid for transfer in transfers]


# A disk that fails


class FullDisk(MempoolJournal):
    """A journal on a disk that is full until there is room again."""

    full = False

    def write(self, added: Iterable[tuple[int, Transfer]], removed: Sequence[int]) -> None:
        self._check()
        super().write(added, removed)

    def rewrite(self, transfers: Iterable[tuple[int, Transfer]]) -> None:
        self._check()
        super().rewrite(transfers)

    def _check(self) -> None:
        if self.full:
            raise DiskError("No space left on device")


@pytest.fixture
def full(make_node: MakeNode) -> Node:
    """A node whose disk can be full."""
    return make_node(make_journal=FullDisk, max_transactions=3)


def fill(node: Node, full: bool) -> None:
    node.journal.full = full  # type: ignore[attr-defined]


def failed(reception: Deferred[SubmitResult]) -> bool:
    with pytest.raises(DiskError, match="No space left"):
        result_of(reception)
    return True


def test_a_transfer_that_is_not_on_disk_is_not_accepted(
    full: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    transfer = chain.transfer("alice", "bob", 5)
    fill(full, True)
    assert all(map(failed, at_once(full, transfer, transfer, chain.transfer("bob", "alice", 5))))
    assert waiting(full) == []
    assert full.witness.pool == []
    assert full.health.trouble == "No space left on device"
    fill(full, False)
    assert full.send(transfer) is ACCEPTED
    assert waiting(full) == [transfer.txid]


def test_replacements_and_evictions_that_cannot_be_written(
    full: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    first, second, third = (chain.transfer("alice", "bob", 5, nonce=0, fee=fee) for fee in (10_000, 20_000, 30_000))
    others = [chain.transfer("bob", "alice", 5, fee=11_000), chain.transfer("carol", "alice", 5, fee=12_000)]
    for transfer in [first, *others]:
        full.send(transfer)
    before, told = waiting(full), len(full.witness.pool)
    lines, size = set(full.mempool.lines()), full.mempool.size
    fill(full, True)
    evicting = chain.transfer("alice", "bob", 5, nonce=1, fee=90_000)
    assert all(map(failed, at_once(full, second, evicting, third)))
    fill(full, False)
    assert waiting(full) == before, "what was acknowledged is there, in memory and on disk"
    assert (set(full.mempool.lines()), full.mempool.size) == (lines, size)
    assert len(full.witness.pool) == told, "nothing has happened"
    receptions = at_once(full, second, evicting, third)
    assert [result_of(reception) for reception in receptions] == [ACCEPTED] * 3
    assert set(waiting(full)) == {others[1].txid, evicting.txid, third.txid}
    assert full.witness.pool[-1] == ([evicting.txid, third.txid], [first.txid, others[0].txid])


def test_a_refusal_that_rests_on_what_cannot_be_written_is_none(
    full: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    fill(full, True)
    pair = [chain.transfer("alice", "bob", amount, nonce=0) for amount in (5, 6)]
    assert all(map(failed, at_once(full, *pair)))


def test_removals_that_cannot_be_written_are_made_up_for(
    full: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(2)]
    for transfer in transfers:
        full.send(transfer)
    fill(full, True)
    full.submit(block := chain.block(transfers=transfers[:1]))
    full.settle()
    assert [transfer.wire for transfer in full.written().values()] == [transfer.wire for transfer in transfers]
    fill(full, False)
    full.submit(chain.block(block))
    full.transaction_pool.drop([bytes(32)])
    assert waiting(full) == [transfers[1].txid]


# In step with the chain


@pytest.fixture(params=["listed", "not listed"])
def max_listed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change lists the ids of its transfers and the accounts that it touched, or has too many of them."""
    for module, name in ((pending_change, "MAX_LISTED"), (chainstate, "_MAX_PENDING_ACCOUNTS")):
        monkeypatch.setattr(module, name, 100 if request.param == "listed" else 0)


@pytest.mark.usefixtures("max_listed")
def test_transfers_in_a_block_leave_the_mempool(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", amount) for amount in (1, 2, 3)]
    for transfer in transfers:
        node.send(transfer)
    node.submit(chain.block(transfers=transfers[:2]))
    assert waiting(node) == [transfers[2].txid]
    assert node.witness.pool[-1] == ([], sorted([transfers[0].txid, transfers[1].txid]))
    assert node.witness.reasons == dict.fromkeys(node.witness.pool[-1][1], RemovalReason.BLOCK)


@pytest.mark.usefixtures("max_listed")
def test_transfers_that_a_block_makes_invalid_leave_the_mempool(node: Node, chain: ChainBuilder) -> None:
    sent = [chain.transfer("alice", "bob", 5, nonce=0), chain.transfer("bob", "alice", 999 * COIN, nonce=1)]
    for transfer in sent:
        node.send(transfer)
    rival, spent = chain.transfer("alice", "bob", 6, nonce=0), chain.transfer("bob", "carol", 2 * COIN, nonce=0)
    node.submit(chain.block(transfers=[rival, spent]))
    assert waiting(node) == []
    assert node.witness.reasons == {transfer.txid: RemovalReason.CONFLICT for transfer in sent}


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


@pytest.mark.usefixtures("max_listed")
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


def test_the_pool_knows_what_a_reorganisation_has_brought_back(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    new_one = chain.transfer("bob", "carol", COIN)
    reorganise(node, old, new)
    node.send(new_one)
    assert (waiting(node), aside(node)) == ([first.txid, new_one.txid], [second.txid])
    assert node.transaction_pool.returned == {first.txid, second.txid}
    third = chain.block(new[-1], transfers=[first])
    node.submit(third)
    node.settle()
    assert node.transaction_pool.returned == {second.txid}
    node.submit(chain.block(third, transfers=[second]))
    assert node.transaction_pool.returned == set()
    assert waiting(node) == [new_one.txid]


def test_a_transfer_sent_again_before_its_return_counts_as_returned(node: Node, chain: ChainBuilder) -> None:
    transfer = chain.transfer("alice", "bob", COIN)
    old, new = two_branches(chain, [transfer], [])
    node.submit(*old)
    reception = node.transaction_pool.submit(transfer, on_lookup=lambda: None)
    node.submit(*new)
    node.settle()
    assert result_of(reception) is ACCEPTED
    assert (waiting(node), node.transaction_pool.returned) == ([transfer.txid], {transfer.txid})


@pytest.mark.usefixtures("max_listed")
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
    assert list(map(result_of, at_once(node, transfer))) == [KNOWN], "it came back first"
    assert waiting(node) == [transfer.txid]


@pytest.mark.usefixtures("max_listed")
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


def test_settled_does_not_wait_for_what_comes_in(node: Node, chain: ChainBuilder) -> None:
    """Webhooks wait for it: else they would tell nothing while others send transfers without end."""
    transfer = chain.transfer("alice", "bob", 5)
    old, new = two_branches(chain, [chain.transfer("bob", "alice", 1)], [])
    node.submit(*old)
    node.submit(*new)
    settled = Deferred.fromCoroutine(node.transaction_pool.readmission_done())
    for _ in range(10):
        node.transaction_pool.submit(transfer)
        node.clock.advance(0)
    node.transaction_pool.submit(transfer)
    assert has_result(settled)
    node.settle()


@pytest.mark.parametrize("again", ["block", "minute"])
def test_a_disk_that_is_full_when_transfers_come_back(
    full: Node, chain: ChainBuilder, expected_errors: ExpectedErrors, again: str
) -> None:
    """The next block is another chance, and so is each minute."""
    first, second, old, new = two_hops(chain)
    full.submit(*old)
    full.submit(*new)
    fill(full, True)
    full.settle()
    assert (len(full.mempool), full.witness.pool, full.written()) == (0, [], {})
    assert [body for _, body in full.store.disconnected()] == [first.wire, second.wire], "the chain's file has them"
    fill(full, False)
    if again == "block":
        full.submit(chain.block(new[-1]))
    else:
        full.transaction_pool.expire()
    full.settle()
    assert (waiting(full), aside(full)) == ([first.txid], [second.txid])


# What a reorganisation leaves without cover


def two_hops(chain: ChainBuilder) -> tuple[Transfer, Transfer, list[Block], list[Block]]:
    """Alice pays dave and then dave pays erin, a block each; and an empty branch that is heavier."""
    first, second = chain.transfer("alice", "dave", COIN), chain.transfer("dave", "erin", COIN // 2)
    return (first, second, *two_branches(chain, [first, second], []))


def aside(node: Node) -> list[bytes]:
    return [transfer.txid for transfer in node.transaction_pool.parked]


def test_a_transfer_whose_cover_was_undone_comes_back_with_it(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    assert (waiting(node), aside(node)) == ([first.txid], [second.txid])
    third = chain.block(new[-1], transfers=[first])
    node.submit(third)
    node.settle()
    assert (waiting(node), aside(node)) == ([second.txid], [])
    node.submit(chain.block(third, transfers=[second]))
    assert (waiting(node), aside(node)) == ([], [])
    assert all(node.store.transaction(transfer.txid, TEST_PARAMS) for transfer in (first, second))


def test_a_transfer_kept_aside_is_not_in_the_mempool(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    assert node.witness.pool[-1] == ([first.txid], [])
    assert node.mempool.get(second.txid) is None
    assert node.send(second) is Refusal.BALANCE


def test_transfers_that_depend_on_an_undone_payment_are_kept_aside(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    later = [chain.transfer("dave", "erin", 5) for _ in range(2)]
    node.submit(*old)
    for transfer in later:
        node.send(transfer)
    reorganise(node, old, new)
    assert (waiting(node), aside(node)) == ([first.txid], [transfer.txid for transfer in (second, *later)])
    third = chain.block(new[-1], transfers=[first, second])
    node.submit(third)
    node.settle()
    assert (waiting(node), aside(node)) == ([transfer.txid for transfer in later], [])


def test_uncovered_transfers_stay_on_disk(node: Node, chain: ChainBuilder) -> None:
    _, second, old, new = two_hops(chain)
    later = chain.transfer("dave", "erin", 5)
    node.submit(*old)
    node.send(later)
    node.submit(*new)
    assert later.txid not in node.mempool
    assert [transfer.wire for transfer in node.written().values()] == [later.wire]
    assert second.wire in {body for _, body in node.store.disconnected()}
    assert aside(node) == [], "the reactor goes first"
    node.settle()
    assert aside(node) == [second.txid, later.txid]
    assert node.witness.reasons[later.txid] is RemovalReason.REORG
    assert {second.wire, later.wire} <= {transfer.wire for transfer in node.written().values()}


def test_transfers_uncovered_by_another_payment_are_not_kept_aside(node: Node, chain: ChainBuilder) -> None:
    node.send(chain.transfer("alice", "bob", 600 * COIN, nonce=1))
    node.submit(chain.block(transfers=[chain.transfer("alice", "bob", 600 * COIN, nonce=0)]))
    node.settle()
    assert (waiting(node), aside(node)) == ([], [])


def test_more_nonces_than_may_wait_are_kept_aside(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(18)]
    old, new = chain.block(producer="o", transfers=transfers), [chain.block(producer="n")]
    new.append(chain.block(new[0], producer="n"))
    reorganise(node, [old], new)
    txids = [transfer.txid for transfer in transfers]
    assert (waiting(node), aside(node)) == (txids[:16], txids[16:])
    node.submit(chain.block(new[1], transfers=transfers[:2]))
    node.settle()
    assert (waiting(node), aside(node)) == (txids[2:], [])


@pytest.mark.usefixtures("max_listed")
def test_a_transfer_kept_aside_is_dropped_when_its_nonce_is_used(node: Node, chain: ChainBuilder) -> None:
    first, _, old, new = two_hops(chain)
    reorganise(node, old, new)
    other = chain.transfer("dave", "alice", 7, nonce=0)
    node.submit(chain.block(new[-1], transfers=[first, other]))
    node.settle()
    assert (waiting(node), aside(node)) == ([], [])


def test_a_transfer_kept_aside_is_dropped_when_it_expires(node: Node, chain: ChainBuilder) -> None:
    _, _, old, new = two_hops(chain)
    reorganise(node, old, new)
    node.clock.advance(DAY - LATE - 1)
    at_present(node, chain, new[-1])
    node.settle()
    assert len(aside(node)) == 1
    node.clock.advance(2)
    node.transaction_pool.expire()
    node.settle()
    assert (waiting(node), aside(node)) == ([], [])


def test_a_transfer_kept_aside_can_be_dropped(node: Node, chain: ChainBuilder) -> None:
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    node.transaction_pool.drop([second.txid])
    assert (waiting(node), aside(node)) == ([first.txid], [])


def test_a_transfer_kept_aside_survives_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    node.close()
    again = make_node()
    assert load(again) == 1
    assert (waiting(again), aside(again)) == ([first.txid], [second.txid])
    again.submit(chain.block(new[-1], transfers=[first]))
    again.settle()
    assert (waiting(again), aside(again)) == ([second.txid], [])


def test_a_crash_after_the_commit_that_undid_them(make_node: MakeNode, chain: ChainBuilder) -> None:
    """Nothing of what is taken back afterwards has happened: the chain's file has it, without a place in the order."""
    node = make_node()
    first, second, old, new = two_hops(chain)
    node.submit(*old)
    earlier = chain.transfer("bob", "alice", 1)
    node.send(earlier)
    node.submit(*new)
    assert [transfer.wire for transfer in node.written().values()] == [earlier.wire]
    assert [body for _, body in node.store.disconnected()] == [first.wire, second.wire]
    node.close()
    again = make_node()
    assert load(again) == 2
    assert (waiting(again), aside(again)) == ([earlier.txid, first.txid], [second.txid])
    assert again.transaction_pool.sequence >= 2


def test_a_crash_before_the_chain_s_file_forgets_them(make_node: MakeNode, chain: ChainBuilder) -> None:
    """Both files have them then, which is no reason that any of them waits twice, or under another number."""
    node = make_node()
    first, second, old, new = two_hops(chain)
    reorganise(node, old, new)
    (entry,) = node.mempool.entries()
    node.store.save_disconnected([first, second])
    node.close()
    again = make_node()
    assert load(again) == 1
    assert (waiting(again), aside(again)) == ([first.txid], [second.txid])
    assert again.mempool.entries()[0].sequence == entry.sequence


def test_a_crash_before_what_a_block_holds_has_left_the_disk(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    held, kept = chain.transfer("alice", "bob", 5), chain.transfer("alice", "bob", 6)
    for transfer in (held, kept):
        node.send(transfer)
    node.submit(chain.block(transfers=[held]))
    assert len(node.written()) == 2
    node.close()
    again = make_node()
    assert load(again) == 1
    assert waiting(again) == [kept.txid]


def test_a_forged_transfer_of_an_undone_block_is_dropped_at_the_start(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    good = chain.transfer("alice", "carol", 6)
    with node.store.commit():
        node.store.save_disconnected([forged(chain.transfer("carol", "bob", 5)), good])
    assert load(node) == 1
    assert waiting(node) == [good.txid]


def test_a_disk_that_is_full_when_undone_transfers_return(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node(make_journal=FullDisk)
    transfer = chain.transfer("alice", "bob", 5)
    with node.store.commit():
        node.store.save_disconnected([transfer])
    fill(node, True)
    with pytest.raises(DatabaseError, match=r"mempool\.journal cannot be used: No space left .*; the disk must"):
        load(node)
    assert [body for _, body in node.store.disconnected()] == [transfer.wire], "nothing is lost"


# A journal that the disk has changed


@pytest.fixture
def logged() -> Iterator[list[LogEvent]]:
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def test_a_damaged_record_costs_its_transfer_and_is_reported(
    make_node: MakeNode, chain: ChainBuilder, logged: list[LogEvent]
) -> None:
    node = make_node()
    transfers = [chain.transfer(name, "dave", 5) for name in ("alice", "bob", "carol")]
    for transfer in transfers:
        node.send(transfer)
    node.close()
    path = node.journal.path
    path.write_bytes(path.read_bytes().replace(transfers[1].wire, transfers[1].wire.replace(b'"5"', b'"6"')) + b"torn")
    again = make_node()
    assert load(again) == 2
    assert waiting(again) == [transfers[0].txid, transfers[2].txid]
    size = path.stat().st_size
    told = [formatEvent(event) for event in logged]
    assert any("mempool.journal is damaged in 1 place, " in line for line in told)
    assert any(line.startswith("the last 4 bytes of ") for line in told)
    again.close()
    logged.clear()
    assert load(make_node()) == 2
    assert (path.stat().st_size, logged) == (size, []), "it was rewritten"


def test_checked_transfers_are_not_checked_again(
    make_node: MakeNode, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = make_node()
    transfers = [chain.transfer("alice", "bob", 5, reference=reference) for reference in (None, "order-1")]
    for transfer in transfers:
        node.send(transfer)
    node.close()
    again = make_node()
    checked: list[Transfer] = []
    monkeypatch.setattr(Transfer, "check_signature", checked.append)
    assert load(again) == 2
    again.submit(chain.block(transfers=transfers))
    assert checked == []


# Time and the operator


def test_a_clock_that_is_behind_at_the_start_loses_nothing(make_node: MakeNode, chain: ChainBuilder) -> None:
    """A computer without a clock of its own begins in the past, until it has asked for the time."""
    node = make_node()
    present = chain.transfer("alice", "bob", 5, timestamp=milliseconds(node.clock))
    node.send(present)
    node.close()
    again = make_node(clock=Clock())
    assert load(again) == 1
    assert waiting(again) == [present.txid]


def test_expired_transfers_leave_memory_and_disk(node: Node, chain: ChainBuilder) -> None:
    old = chain.transfer("alice", "bob", 5)
    new = chain.transfer("bob", "alice", 5, timestamp=TEST_PARAMS.genesis_time + 1)
    for transfer in (old, new):
        node.send(transfer)
    node.transaction_pool.expire()
    node.settle()
    assert waiting(node) == [old.txid, new.txid]
    node.clock.advance(DAY - LATE)
    at_present(node, chain)
    node.clock.advance(0.001)
    node.transaction_pool.expire()
    node.settle()
    assert waiting(node) == [new.txid]
    assert node.witness.pool[-1] == ([], [old.txid])
    assert node.witness.reasons == {old.txid: RemovalReason.EXPIRY}


def test_expired_transfers_leave_in_steps(node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_SCAN_PER_TURN", 2)
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(5)]
    for transfer in transfers:
        node.send(transfer)
    node.clock.advance(2 * DAY)
    at_present(node, chain)
    told = len(node.witness.pool)
    node.transaction_pool.expire()
    node.transaction_pool.expire()
    assert len(node.mempool) == 5, "the reactor goes first"
    node.settle()
    assert waiting(node) == []
    assert [len(removed) for _, removed in node.witness.pool[told:]] == [2, 2, 1]


def test_no_transfer_block_or_expiry_has_all_listed_that_waits(
    node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor all that is kept aside: there may be 50,000 of the ones and 4,096 of the others."""

    def listed(_: object) -> list[Any]:
        raise AssertionError("all of them are looked at")

    with monkeypatch.context() as patched:
        patched.setattr(Mempool, "entries", listed)
        patched.setattr(DisconnectedTransfers, "parked", listed)
        first, second, third = (chain.transfer("alice", "bob", 5) for _ in range(3))
        assert [node.send(first), node.send(second)] == [ACCEPTED, ACCEPTED]
        node.submit(chain.block(transfers=[first]))
        assert node.send(third) is ACCEPTED
        assert [entry.transfer for entry in node.mempool.since(0, 9)] == [second, third]
        assert [len(line) for line in node.mempool.lines()] == [2]
        patched.setattr(DisconnectedTransfers, "parked", lambda _: [])
        node.transaction_pool.expire()
        node.settle()
    assert waiting(node) == [second.txid, third.txid]


def test_the_operator_drops_transfers(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(3)]
    for transfer in transfers:
        node.send(transfer)
    node.transaction_pool.drop([transfers[1].txid, bytes(32)])
    assert waiting(node) == [transfers[0].txid, transfers[2].txid]
    assert node.witness.reasons == {transfers[1].txid: RemovalReason.DROPPED}
    told = len(node.witness.pool)
    node.transaction_pool.drop([bytes(32)])
    assert len(node.witness.pool) == told, "nothing happened"


# Across a restart


def test_the_mempool_survives_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    transfers = [chain.transfer(sender, "carol", 5) for sender in ("alice", "bob", "alice")]
    for transfer in transfers:
        node.send(transfer)
    node.transaction_pool.drop([transfers[0].txid])
    node.settle()
    kept = [entry.sequence for entry in node.mempool.entries()]
    node.close()
    again = make_node()
    assert load(again) == 2
    assert waiting(again) == [transfers[1].txid, transfers[2].txid]
    assert [entry.sequence for entry in again.mempool.entries()] == kept
    first = again.transaction_pool.sequence
    again.send(transfers[0])
    assert waiting(again) == [transfers[1].txid, transfers[2].txid, transfers[0].txid]
    assert again.transaction_pool.sequence == first + 1


def test_an_empty_pool_across_a_restart(make_node: MakeNode) -> None:
    node = make_node()
    assert load(node) == 0
    assert node.transaction_pool.sequence == node.clock.seconds() * 1_000_000


def test_a_number_of_an_earlier_run_never_comes_again(make_node: MakeNode, chain: ChainBuilder) -> None:
    """Whoever asks for what came after one of before the restart misses nothing, however much has come meanwhile."""
    node = make_node()
    load(node)
    sent = [chain.transfer("alice", "carol", 5) for _ in range(3)]
    for transfer in sent:
        node.send(transfer)
    cursor = node.transaction_pool.sequence
    node.transaction_pool.drop([transfer.txid for transfer in sent[1:]])
    node.close()
    node.clock.advance(0.001)
    again = make_node(clock=node.clock)
    load(again)
    later = [chain.transfer("bob", "carol", 5) for _ in range(4)]
    for transfer in later:
        again.send(transfer)
    assert [entry.transfer.txid for entry in again.mempool.since(cursor, 9)] == [new.txid for new in later]


def test_transfers_that_became_invalid_are_dropped_after_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    used, kept = chain.transfer("alice", "bob", 5), chain.transfer("bob", "alice", 5)
    entries = [MempoolEntry(transfer, number) for number, transfer in enumerate((used, kept), 1)]
    node.submit(chain.block(transfers=[used]))
    node.journal.write([(entry.sequence, entry.transfer) for entry in entries], [])
    node.close()
    again = make_node()
    assert load(again) == 1
    assert waiting(again) == [kept.txid]


def test_expired_transfers_are_dropped_after_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
    node = make_node()
    node.send(chain.transfer("alice", "bob", 5))
    node.close()
    again = make_node()
    again.clock.advance(DAY)
    at_present(again, chain)
    assert load(again) == 0
    assert waiting(again) == []


def test_transfers_that_build_on_a_replacement_survive_a_restart(make_node: MakeNode, chain: ChainBuilder) -> None:
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

    look: Callable[[Sequence[MempoolEntry], Removals], object]

    def pool_changed(self, added: Sequence[MempoolEntry], removed: Removals) -> None:
        self.look(added, removed)


def test_listeners_are_told_after_the_commit(node: Node, chain: ChainBuilder) -> None:
    seen: list[int] = []
    node.transaction_pool.subscribe(Onlooker(lambda added, removed: seen.append(len(node.written()))))
    node.send(chain.transfer("alice", "bob", 5))
    node.send(chain.transfer("alice", "bob", 5))
    assert seen == [1, 2]


def test_a_failing_listener_does_not_silence_the_next(
    node: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    told: list[int] = []

    def fail(added: Sequence[MempoolEntry], removed: Removals) -> None:
        raise ZeroDivisionError("a bug in a listener")

    node.transaction_pool.subscribe(Onlooker(fail))
    node.transaction_pool.subscribe(Onlooker(lambda added, removed: told.append(len(added))))
    assert node.send(chain.transfer("alice", "bob", 5)) is ACCEPTED
    assert told == [1]
    assert len(expected_errors(ZeroDivisionError)) == 1


def test_refusals_are_counted_by_the_rule_and_errors_of_the_disk_are_not(
    full: Node, chain: ChainBuilder, expected_errors: ExpectedErrors
) -> None:
    used = chain.transfer("alice", "bob", 5)
    full.submit(chain.block(transfers=[used]))
    for refused in (
        chain.transfer("alice", "carol", 6, nonce=0),
        forged(chain.transfer("bob", "alice", 5)),
        forged(used),
    ):
        full.send(refused)
    fill(full, True)
    assert all(map(failed, at_once(full, chain.transfer("bob", "alice", 5, nonce=0))))
    assert full.transaction_pool.refusals == {Refusal.NONCE: 1, Refusal.TRANSACTION_SIGNATURE: 2}
