"""The checks that cost time, spread over threads (docs/protocol.md 3, 10)."""

from collections.abc import Callable

import pytest
from attrs import evolve
from twisted.internet.defer import CancelledError, Deferred

from svcd.chain.block import Block, parse_block
from svcd.chain.errors import NotYet, Refusal, Wait
from svcd.chain.signature import sign
from svcd.chain.transaction import Transfer
from svcd.node import verifier as verifier_module
from svcd.node.threads import InlineWorker
from svcd.node.verifier import Verdict, Verifier
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import Stepped
from tests.support import result_of


def make(worker: InlineWorker | Stepped | None = None, *, threads: int = 2, capacity: int = 100) -> Verifier:
    return Verifier(TEST_PARAMS, InlineWorker() if worker is None else worker, threads=threads, capacity=capacity)


def check_work(verifier: Verifier, *blocks: Block) -> list[Refusal | None]:
    return codes(result_of(Deferred.fromCoroutine(verifier.check_work_and_signatures(blocks))))


def check_transfers(verifier: Verifier, *transfers: Transfer) -> list[Refusal | None]:
    return codes(result_of(Deferred.fromCoroutine(verifier.check_transfers(transfers))))


def read(verifier: Verifier, *data: Block | bytes) -> list[tuple[Block | None, Verdict]]:
    return result_of(verifier.parse_and_check(data, parse_block))


def check_seals(verifier: Verifier, *blocks: Block) -> list[Refusal | None]:
    return codes([verdict for _, verdict in read(verifier, *blocks)])


def codes(verdicts: list[Verdict]) -> list[Refusal | None]:
    return [None if verdict is None else verdict.code for verdict in verdicts]


def forged(transfer: Transfer) -> Transfer:
    """The same transfer with a signature by somebody else."""
    return evolve(transfer, signature=sign(key_of("forger").seed, transfer.txid))


def transfers(chain: ChainBuilder, number: int) -> list[Transfer]:
    return [chain.transfer("alice", "bob", amount) for amount in range(1, number + 1)]


@pytest.fixture
def signatures(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The txids whose signatures are checked from now on."""
    checked: list[bytes] = []
    real: Callable[[Transfer], None] = Transfer.check_signature

    def counted(transfer: Transfer) -> None:
        checked.append(transfer.txid)
        real(transfer)

    monkeypatch.setattr(Transfer, "check_signature", counted)
    return checked


# Parsing and seals


def test_blocks_are_parsed_or_refused_one_by_one(chain: ChainBuilder) -> None:
    block = chain.block(transfers=transfers(chain, 2))
    found = read(make(), block.wire(), b"{}", b"nonsense")
    assert codes([verdict for _, verdict in found]) == [None, Refusal.FIELDS, Refusal.ENCODING]
    assert [each and each.wire() for each, _ in found] == [block.wire(), None, None]


def test_a_waiting_transfer_is_not_parsed_again_with_its_block(chain: ChainBuilder) -> None:
    block = chain.block(transfers=transfers(chain, 2))
    waiting = block.transfers[1]
    verifier = Verifier(TEST_PARAMS, InlineWorker(), threads=1, capacity=1, known={waiting.txid: waiting}.get)
    ((found, verdict),) = read(verifier, block.wire())
    assert found is not None
    assert (found.wire(), verdict) == (block.wire(), None)
    assert [transfer is same for transfer, same in zip(found.transfers, block.transfers, strict=True)] == [False, True]


def test_a_block_that_is_read_already_stays_as_it_is(chain: ChainBuilder) -> None:
    block = chain.block(break_=Refusal.BLOCK_SIGNATURE)
    ((same, verdict),) = read(make(), block)
    assert same is block
    assert codes([verdict]) == [Refusal.BLOCK_SIGNATURE]


def test_seals_are_the_signature_and_the_body(chain: ChainBuilder) -> None:
    blocks = [
        chain.block(),
        chain.block(break_=Refusal.BLOCK_SIGNATURE),
        chain.block(break_=Refusal.TRANSACTION_COUNT),
        chain.block(break_=Refusal.TRANSACTIONS_ROOT),
        chain.block(break_=Refusal.WORK),
    ]
    assert check_seals(make(), *blocks) == [
        None,
        Refusal.BLOCK_SIGNATURE,
        Refusal.TRANSACTION_COUNT,
        Refusal.TRANSACTIONS_ROOT,
        None,
    ]


# Work and signatures


def test_work_and_signatures_are_checked(chain: ChainBuilder) -> None:
    blocks = [
        chain.block(transfers=transfers(chain, 3)),
        chain.block(break_=Refusal.WORK),
        chain.block(break_=Refusal.TRANSACTION_SIGNATURE),
        chain.block(break_=Refusal.STATE_ROOT),
    ]
    assert check_work(make(), *blocks) == [None, Refusal.WORK, Refusal.TRANSACTION_SIGNATURE, None]


def test_nothing_to_check() -> None:
    stepped = Stepped()
    assert check_work(make(stepped)) == []
    assert check_transfers(make(stepped)) == []
    assert len(stepped) == 0


def test_signatures_of_a_block_without_work_are_not_checked(chain: ChainBuilder, signatures: list[bytes]) -> None:
    block = chain.block(transfers=transfers(chain, 3), break_=Refusal.WORK)
    assert check_work(make(), block) == [Refusal.WORK]
    assert signatures == []


def test_a_verdict_belongs_to_the_block_that_holds_the_forgery(chain: ChainBuilder) -> None:
    parent, blocks = None, []
    for number in range(5):
        fault = Refusal.TRANSACTION_SIGNATURE if number == 3 else None
        payments = [chain.transfer("alice", "bob", 1, nonce=chain.account_after(parent, "alice").nonce)]
        parent = chain.block(parent, transfers=payments * (number != 1), break_=fault)
        blocks.append(parent)
    assert check_work(make(), *blocks) == [None, None, None, Refusal.TRANSACTION_SIGNATURE, None]


# What has been verified before


def test_a_transfer_that_waited_is_not_verified_again_in_a_block(chain: ChainBuilder, signatures: list[bytes]) -> None:
    verifier, waited = make(), transfers(chain, 4)
    assert check_transfers(verifier, *waited[:3]) == [None] * 3
    signatures.clear()
    assert check_work(verifier, chain.block(transfers=waited)) == [None]
    assert signatures == [waited[3].txid]


def test_the_cache_of_signatures_covers_signature_and_transfer(chain: ChainBuilder) -> None:
    verifier, (transfer,) = make(), transfers(chain, 1)
    assert check_transfers(verifier, transfer) == [None]
    assert check_transfers(verifier, forged(transfer)) == [Refusal.TRANSACTION_SIGNATURE]
    assert check_work(verifier, Block(chain.block().header, (forged(transfer),))) == [Refusal.TRANSACTION_SIGNATURE]
    assert check_work(verifier, Block(chain.block().header, (transfer,))) == [None]


def test_a_forgery_is_not_remembered(chain: ChainBuilder, signatures: list[bytes]) -> None:
    verifier, (transfer,) = make(), transfers(chain, 1)
    for _ in range(2):
        assert check_transfers(verifier, forged(transfer)) == [Refusal.TRANSACTION_SIGNATURE]
    assert check_work(verifier, Block(chain.block().header, (forged(transfer),))) == [Refusal.TRANSACTION_SIGNATURE]
    assert signatures == [transfer.txid] * 3


def test_the_oldest_is_forgotten_when_there_is_too_much(
    chain: ChainBuilder, signatures: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier_module, "_REMEMBERED", 2)
    verifier, waited = make(), transfers(chain, 3)
    check_transfers(verifier, *waited)
    signatures.clear()
    assert check_work(verifier, chain.block(transfers=waited)) == [None]
    assert signatures == [waited[0].txid]


# Threads and the queue


def test_work_is_spread_over_the_lanes(chain: ChainBuilder) -> None:
    stepped = Stepped()
    blocks = [chain.block(producer=f"p{number}") for number in range(7)]
    Deferred.fromCoroutine(make(stepped, threads=3).check_work_and_signatures(blocks))
    assert len(stepped) == 3


def test_a_few_signatures_are_not_torn_apart(chain: ChainBuilder) -> None:
    stepped = Stepped()
    Deferred.fromCoroutine(make(stepped, threads=4).check_transfers(transfers(chain, 64)))
    assert len(stepped) == 1
    Deferred.fromCoroutine(make(stepped, threads=4).check_transfers(transfers(chain, 65)))
    assert len(stepped) == 3


@pytest.mark.parametrize("number", [1, 63, 64, 65, 130, 300])
def test_verdicts_come_in_order_from_any_number_of_chunks(chain: ChainBuilder, number: int) -> None:
    waiting = transfers(chain, number)
    bad = set(range(0, number, 7))
    mixed = [forged(transfer) if index in bad else transfer for index, transfer in enumerate(waiting)]
    expected = [Refusal.TRANSACTION_SIGNATURE if index in bad else None for index in range(number)]
    assert check_transfers(make(threads=2), *mixed) == expected


def test_no_more_than_the_capacity_may_wait(chain: ChainBuilder) -> None:
    stepped = Stepped()
    verifier = make(stepped, capacity=3)
    blocks = [chain.block(producer=f"p{number}") for number in range(4)]
    waiting = Deferred.fromCoroutine(verifier.check_work_and_signatures(blocks[:2]))
    assert verifier.waiting == 2
    with pytest.raises(NotYet) as busy:
        check_work(verifier, *blocks[2:])
    assert busy.value.code is Wait.BUSY
    assert busy.value.detail == "2 blocks wait to be verified; send this one again later"
    assert verifier.waiting == 2
    more = Deferred.fromCoroutine(verifier.check_work_and_signatures(blocks[2:3]))
    assert verifier.waiting == 3
    stepped.finish()
    assert codes(result_of(waiting)) == [None, None]
    assert codes(result_of(more)) == [None]
    assert verifier.waiting == 0


def test_a_thread_that_fails_frees_its_place_in_the_queue(chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise MemoryError

    verifier = make(capacity=1)
    block = chain.block()
    monkeypatch.setattr(verifier_module, "check_work", fail)
    with pytest.raises(MemoryError):
        check_work(verifier, block)
    monkeypatch.undo()
    assert verifier.waiting == 0
    assert check_work(verifier, block) == [None]


# Headers


def check_headers(verifier: Verifier, *blocks: Block) -> list[Refusal | None]:
    return codes(result_of(Deferred.fromCoroutine(verifier.check_headers([block.header for block in blocks]))))


def chain_of(chain: ChainBuilder, count: int, bad: int = -1, rule: Refusal = Refusal.WORK) -> list[Block]:
    blocks: list[Block] = []
    for number in range(count):
        last = blocks[-1] if blocks else None
        blocks.append(chain.block(last, break_=rule if number == bad else None))
    return blocks


def test_a_header_that_holds_is_not_worked_on_again(chain: ChainBuilder, argon: list[bytes]) -> None:
    verifier, blocks = make(), chain_of(chain, 20)
    argon.clear()
    assert check_headers(verifier, *blocks) == [None] * 20
    assert len(argon) == 20
    assert all(verifier.is_verified(block.header) for block in blocks)
    assert check_headers(verifier, *blocks) == [None] * 20
    assert check_seals(verifier, *blocks) == [None] * 20
    assert check_work(verifier, *blocks) == [None] * 20
    assert len(argon) == 20


def test_a_forged_signature_with_a_known_hash_is_refused(chain: ChainBuilder, argon: list[bytes]) -> None:
    """The hash leaves the signature out."""
    verifier, (block,) = make(), chain_of(chain, 1)
    check_headers(verifier, block)
    forged = Block(evolve(block.header, signature=bytes(64)), block.transfers)
    assert forged.header.hash == block.header.hash
    assert not verifier.is_verified(forged.header)
    assert check_seals(verifier, forged) == [Refusal.BLOCK_SIGNATURE]
    assert check_headers(verifier, forged) == [Refusal.BLOCK_SIGNATURE]
    assert verifier.is_verified(block.header)


def test_a_body_under_a_known_header_is_checked(chain: ChainBuilder) -> None:
    verifier, block = make(), chain.block(transfers=transfers(chain, 2))
    check_headers(verifier, block)
    assert check_seals(verifier, Block(block.header, block.transfers[:1])) == [Refusal.TRANSACTION_COUNT]
    other = (forged(block.transfers[0]), block.transfers[1])
    assert check_seals(verifier, Block(block.header, other)) == [Refusal.TRANSACTIONS_ROOT]


@pytest.mark.parametrize("rule", [Refusal.WORK, Refusal.BLOCK_SIGNATURE])
def test_a_header_that_does_not_hold_is_not_remembered(chain: ChainBuilder, argon: list[bytes], rule: Refusal) -> None:
    verifier, blocks = make(), chain_of(chain, 3, 2, rule)
    assert check_headers(verifier, *blocks) == [None, None, rule]
    assert not verifier.is_verified(blocks[2].header)
    argon.clear()
    assert check_headers(verifier, *blocks) == [None, None, rule]
    assert len(argon) == (rule is Refusal.WORK)


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("bad", [0, 7, 8, 50])
def test_the_check_ends_soon_after_the_first_header_that_does_not_hold(
    chain: ChainBuilder, argon: list[bytes], threads: int, bad: int
) -> None:
    """On all threads: the rest of 2,000 headers of junk must not be worked on."""
    blocks = chain_of(chain, 120, bad)
    argon.clear()
    stepped = Stepped()
    verifier = make(stepped, threads=threads)
    checking = Deferred.fromCoroutine(verifier.check_headers([block.header for block in blocks]))
    stepped.finish()
    found = codes(result_of(checking))
    assert found[:bad] == [None] * bad
    assert found[bad] is Refusal.WORK
    assert len(argon) <= bad + 8 * (threads + 1)


def flood_of_headers(verifier: Verifier, chain: ChainBuilder) -> list[Deferred[list[Verdict]]]:
    """A long chain, and many announced ones."""
    headers = [block.header for block in chain_of(chain, 100)]
    return [
        Deferred.fromCoroutine(verifier.check_headers(junk)) for junk in (headers[:80], *zip(headers[80:], strict=True))
    ]


def flood_of_blocks(verifier: Verifier, chain: ChainBuilder) -> list[Deferred[list[Verdict]]]:
    """Each handed in by itself."""
    junk = [chain.block(producer=f"p{number}", break_=Refusal.WORK) for number in range(30)]
    return [Deferred.fromCoroutine(verifier.check_work_and_signatures([block])) for block in junk]


@pytest.mark.parametrize("flood", [flood_of_headers, flood_of_blocks])
def test_a_flood_does_not_delay_the_signature_of_a_payment(
    chain: ChainBuilder, flood: Callable[[Verifier, ChainBuilder], list[Deferred[list[Verdict]]]]
) -> None:
    """However much waits, three small pieces of it at most are in the queue of two threads."""
    stepped = Stepped()
    verifier = make(stepped, threads=2)
    checking = flood(verifier, chain)
    for _ in range(5):
        paid = Deferred.fromCoroutine(verifier.check_transfers([chain.transfer("alice", "bob", 5)]))
        assert len(stepped) <= 4
        for _ in range(4):
            stepped.step()
        assert result_of(paid) == [None]
    stepped.finish()
    for each in checking:
        result_of(each)


def test_signatures_of_blocks_are_checked_in_small_pieces(chain: ChainBuilder, signatures: list[bytes]) -> None:
    stepped, parent, blocks = Stepped(), None, []
    for first in range(0, 600, 100):
        parent = chain.block(parent, transfers=[chain.transfer("alice", "bob", 1, nonce=first + n) for n in range(100)])
        blocks.append(parent)
    checking = Deferred.fromCoroutine(make(stepped, threads=2).check_work_and_signatures(blocks))
    while len(stepped):
        before = len(signatures)
        stepped.step()
        assert len(signatures) - before <= 256
    assert codes(result_of(checking)) == [None] * 6
    assert len(signatures) == 600


def test_headers_are_forgotten_in_the_order_in_which_they_came(
    chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier_module, "REMEMBERED_HEADERS", 5)
    verifier, blocks = make(), chain_of(chain, 8)
    check_headers(verifier, *blocks)
    assert [verifier.is_verified(block.header) for block in blocks] == [False] * 3 + [True] * 5


def test_a_check_of_headers_that_is_given_up_fails_as_that(chain: ChainBuilder) -> None:
    stepped = Stepped()
    checking = Deferred.fromCoroutine(make(stepped).check_headers([chain.block().header]))
    checking.cancel()
    with pytest.raises(CancelledError):
        result_of(checking)
