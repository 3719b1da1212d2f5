"""The one door for blocks: the order of the checks, what is remembered, what waits (docs/protocol.md 10)."""

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.node.changes import Standing
from tests.chains import ChainBuilder
from tests.node.bench import Node, code_of
from tests.node.connecting import CONNECTED, KNOWN, SIDE
from tests.node.faults import FAULTS, REMEMBERED, Sketch, faulty
from tests.support import result_of

Fault = Callable[[Sketch], None]


# The order of the checks


def with_a_transfer(chain: ChainBuilder) -> tuple[Block, Block]:
    """A block to stand on, and a valid one that holds a transfer."""
    first = chain.block()
    return first, chain.block(first, transfers=[chain.transfer("alice", "bob", 5)])


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_of_many_faults_the_first_in_order_is_found(node: Node, chain: ChainBuilder, number: int) -> None:
    first, good = with_a_transfer(chain)
    node.submit(first)
    data = faulty(good, "p", [fault for _, fault in FAULTS[number:]])
    assert node.submit(data) == [FAULTS[number][0]]
    assert node.tip == first.header.hash
    assert node.submit(good) == [CONNECTED]


def test_a_block_without_any_fault(node: Node, chain: ChainBuilder) -> None:
    first, good = with_a_transfer(chain)
    assert node.submit(first, faulty(good, "p", [])) == [CONNECTED, CONNECTED]
    assert node.tip == good.header.hash
    node.check()


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_cheap_checks_come_before_participation_work(
    node: Node, chain: ChainBuilder, argon: list[bytes], number: int
) -> None:
    code, fault = FAULTS[number]
    first, good = with_a_transfer(chain)
    node.submit(first)
    data = faulty(good, "p", [fault])
    argon.clear()
    assert node.submit(data) == [code]
    assert len(argon) == (number >= [code for code, _ in FAULTS].index(Refusal.WORK))


# What is remembered as invalid


@pytest.mark.parametrize(("code", "fault"), FAULTS)
def test_only_what_the_hash_commits_to_is_remembered(
    node: Node, chain: ChainBuilder, argon: list[bytes], code: Refusal | Wait, fault: Fault
) -> None:
    first, good = with_a_transfer(chain)
    node.submit(first)
    data = faulty(good, "p", [fault])
    assert node.submit(data) == [code]
    argon.clear()
    assert node.submit(data) == [Refusal.KNOWN_INVALID if code in REMEMBERED else code]
    # Only an early block is asked for its work again: nothing may be remembered of it.
    assert len(argon) == (code is Wait.EARLY)
    node.ledger.stop()


def junk_copies(block: Block) -> dict[str, bytes]:
    """What has the hash of ``block`` and is not ``block``."""
    data, header = block.wire(), block.header
    (transfer,) = block.transfers
    signature = bytes([transfer.signature[0] ^ 1]) + transfer.signature[1:]
    return {
        "its signature": data.replace(header.signature.hex().encode(), bytes(64).hex().encode()),
        "no transfers": header.wire(b""),
        "a transfer twice": header.wire(transfer.wire + b"," + transfer.wire),
        "a transfer's signature": data.replace(transfer.signature.hex().encode(), signature.hex().encode()),
        "a transfer's content": data.replace(b'"amount":"5"', b'"amount":"6"'),
        "blanks": data + b" ",
    }


COPIES = "its signature,no transfers,a transfer twice,a transfer's signature,a transfer's content,blanks".split(",")


@pytest.mark.parametrize("what", COPIES)
def test_a_junk_copy_does_not_keep_the_honest_block_out(node: Node, chain: ChainBuilder, what: str) -> None:
    first, good = with_a_transfer(chain)
    junk = junk_copies(good)[what]
    node.submit(first)
    (refusal,) = node.submit(junk)
    assert isinstance(refusal, Refusal)
    assert refusal not in REMEMBERED
    assert node.submit(good) == [CONNECTED]


@pytest.mark.parametrize("what", COPIES)
def test_a_junk_copy_in_the_same_batch(node: Node, chain: ChainBuilder, what: str) -> None:
    first, good = with_a_transfer(chain)
    junk = junk_copies(good)[what]
    outcomes = node.submit(first, junk, good, junk)
    assert (outcomes[0], outcomes[2]) == (CONNECTED, CONNECTED)
    assert node.tip == good.header.hash


@pytest.mark.parametrize("what", COPIES)
def test_a_junk_copy_of_an_early_block_is_not_kept(node: Node, chain: ChainBuilder, what: str) -> None:
    first = chain.block()
    soon = node.chain.params.slot_at(int(node.clock.seconds() * 1000)) + 20
    good = chain.block(first, slot=soon, transfers=[chain.transfer("alice", "bob", 5)])
    node.submit(first)
    assert isinstance(node.submit(junk_copies(good)[what])[0], Refusal)
    assert node.clock.getDelayedCalls() == []
    assert node.submit(good) == [Wait.EARLY]
    assert len(node.clock.getDelayedCalls()) == 1


def test_invalid_blocks_are_forgotten_when_there_are_too_many(
    node: Node, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svcd.node.ledger.REMEMBERED_INVALID", 3)
    bad = [chain.block(producer=f"p{n}", break_=Refusal.BASE_TARGET) for n in range(4)]
    assert node.submit(*bad[:3]) == [Refusal.BASE_TARGET] * 3
    assert node.submit(*bad[:3]) == [Refusal.KNOWN_INVALID] * 3
    assert node.submit(bad[3]) == [Refusal.BASE_TARGET]
    assert node.submit(*bad[1:]) == [Refusal.KNOWN_INVALID] * 3
    assert node.submit(bad[0]) == [Refusal.BASE_TARGET], "the oldest was forgotten"


# Descendants of invalid blocks


RULES = [Refusal.WORK, Refusal.BASE_TARGET, Refusal.TRANSACTION_SIGNATURE, Refusal.STATE_ROOT, Refusal.NONCE]


@pytest.mark.parametrize("rule", RULES)
def test_descendants_of_an_invalid_block_are_invalid(
    node: Node, chain: ChainBuilder, argon: list[bytes], rule: Refusal
) -> None:
    b = list(chain.chain(f"genesis: b[1..4]\nb2 has an invalid {rule.replace('-', ' ')}").values())
    assert node.submit(b[0], b[1]) == [CONNECTED, rule]
    argon.clear()
    assert node.submit(b[2]) == [Refusal.ANCESTOR]
    assert node.submit(b[2], b[3]) == [Refusal.KNOWN_INVALID, Refusal.ANCESTOR]
    assert argon == []
    assert node.tip == b[0].header.hash


@pytest.mark.parametrize("rule", RULES)
def test_descendants_of_an_invalid_block_in_one_batch(node: Node, chain: ChainBuilder, rule: Refusal) -> None:
    b = list(chain.chain(f"genesis: b[1..4]\nb2 has an invalid {rule.replace('-', ' ')}").values())
    assert node.submit(*b) == [CONNECTED, rule, Refusal.ANCESTOR, Refusal.ANCESTOR]
    assert node.submit(*b) == [KNOWN] + [Refusal.KNOWN_INVALID] * 3


def test_descendants_of_a_junk_copy_are_not_invalid(node: Node, chain: ChainBuilder) -> None:
    first, good = with_a_transfer(chain)
    child = chain.block(good)
    assert node.submit(first, junk_copies(good)["its signature"], child) == [
        CONNECTED,
        Refusal.BLOCK_SIGNATURE,
        Wait.ORPHAN,
    ]
    assert node.submit(good, child) == [CONNECTED, CONNECTED]


def test_a_side_branch_that_turns_out_invalid_is_remembered(node: Node, chain: ChainBuilder) -> None:
    b = chain.chain("genesis: b[1..3]\ngenesis: c[1..5]\nc2 has an invalid consensus root")
    assert node.submit(*(b[f"b{n}"] for n in (1, 2, 3))) == [CONNECTED] * 3
    assert node.submit(b["c1"], b["c2"]) == [SIDE, SIDE]
    outcomes = node.submit(b["c3"], b["c4"], b["c5"])
    assert outcomes[-2:] == [Refusal.ANCESTOR] * 2
    assert node.submit(b["c2"], b["c3"]) == [Refusal.KNOWN_INVALID] * 2
    assert node.submit(b["c1"]) == [KNOWN]
    assert node.tip == b["b3"].header.hash
    node.check()


# Orphans


def test_an_orphan_costs_no_work_and_no_room(node: Node, chain: ChainBuilder, argon: list[bytes]) -> None:
    first, second = chain.chain("genesis: b[1..2]").values()
    argon.clear()
    for _ in range(3):
        assert node.submit(second) == [Wait.ORPHAN]
    assert argon == []
    assert not node.holds(second)
    assert node.clock.getDelayedCalls() == []
    assert node.submit(first, second) == [CONNECTED, CONNECTED]


def test_parents_come_before_children_in_a_batch(node: Node, chain: ChainBuilder) -> None:
    first, second, third = chain.chain("genesis: b[1..3]").values()
    assert node.submit(second, first, third) == [Wait.ORPHAN, CONNECTED, Wait.ORPHAN]


# One block


def test_one_block_by_itself(node: Node, chain: ChainBuilder) -> None:
    def submit(block: Block) -> Standing:
        return result_of(Deferred.fromCoroutine(node.ledger.submit_block(block.wire())))

    first, second = chain.chain("genesis: b[1..2]").values()
    with pytest.raises(NotYet) as wait:
        submit(second)
    assert wait.value.code is Wait.ORPHAN
    with pytest.raises(RuleViolation) as refusal:
        submit(chain.block(break_=Refusal.WORK))
    assert refusal.value.code is Refusal.WORK
    assert submit(first) is CONNECTED
    assert submit(first) is KNOWN


def test_one_block_with_its_hash(node: Node, chain: ChainBuilder) -> None:
    def submit(data: bytes) -> tuple[str, bytes]:
        outcome, block_hash = result_of(Deferred.fromCoroutine(node.ledger.submit(data)))
        return code_of(outcome), block_hash

    first, second = chain.chain("genesis: b[1..2]").values()
    bad = chain.block(break_=Refusal.WORK)
    assert submit(second.wire()) == (Wait.ORPHAN, second.header.hash)
    assert submit(bad.wire()) == (Refusal.WORK, bad.header.hash)
    assert submit(first.wire()) == (CONNECTED, first.header.hash)
    assert submit(b"nonsense") == (Refusal.ENCODING, b"")
