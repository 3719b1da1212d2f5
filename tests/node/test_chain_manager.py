"""The one door for blocks: the order of the checks, what is remembered, what waits (docs/protocol.md 10)."""

import json
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from svcd.chain.block import Block
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.transition import ChainPoint
from svcd.node.chain_manager import MAX_FUTURE_BLOCKS, MAX_SLOTS_AHEAD, FutureBlocks
from svcd.node.changes import BlockStatus, HeaderCheck
from svcd.store.chain_store import ChainReader
from tests.chains import TEST_PARAMS, ChainBuilder
from tests.node.bench import LATE, Node, code_of, late_clock
from tests.node.conftest import MakeNode
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
    data = faulty(chain.head_after(first), good, "p", [fault for _, fault in FAULTS[number:]])
    assert node.submit(data) == [FAULTS[number][0]]
    assert node.tip == first.header.hash
    assert node.submit(good) == [CONNECTED]


def test_a_block_without_any_fault(node: Node, chain: ChainBuilder) -> None:
    first, good = with_a_transfer(chain)
    assert node.submit(first, faulty(chain.head_after(first), good, "p", [])) == [CONNECTED, CONNECTED]
    assert node.tip == good.header.hash
    node.check()


@pytest.mark.parametrize("number", range(len(FAULTS)))
def test_cheap_checks_come_before_participation_work(
    node: Node, chain: ChainBuilder, argon: list[bytes], number: int
) -> None:
    code, fault = FAULTS[number]
    first, good = with_a_transfer(chain)
    node.submit(first)
    data = faulty(chain.head_after(first), good, "p", [fault])
    argon.clear()
    assert node.submit(data) == [code]
    assert len(argon) == (number >= [code for code, _ in FAULTS].index(Refusal.WORK))


# Reads


def height_in(reader: ChainReader) -> int:
    return reader.existing_tip().height


def test_reads_of_one_turn_of_the_reactor_see_one_commit(node: Node, chain: ChainBuilder) -> None:
    manager = node.chain_manager
    assert manager.read(ChainReader.prune_height) == (0, manager.tip)
    with node.store.commit():
        node.connections[0].execute("UPDATE prune SET height = 7")
    assert manager.read(ChainReader.prune_height)[0] == 0
    node.clock.advance(0)
    assert manager.read(ChainReader.prune_height)[0] == 7


def test_reads_after_a_block_see_it_in_the_same_turn(node: Node, chain: ChainBuilder) -> None:
    manager, blocks = node.chain_manager, chain.chain("genesis: a[1..2]")
    for height, block in enumerate(blocks.values(), 1):
        assert manager.read(height_in) == (height - 1, manager.tip)
        node.submit(block)
        assert manager.read(height_in) == (height, manager.tip)
    assert manager.tip.height == 2


def test_a_transaction_that_an_error_has_ended_is_not_ended_again(node: Node, chain: ChainBuilder) -> None:
    manager = node.chain_manager
    manager.read(height_in)
    node.connections[1].execute("ROLLBACK")
    node.clock.advance(0)
    assert manager.read(height_in) == (0, manager.tip)


# What is remembered as invalid


@pytest.mark.parametrize(("code", "fault"), FAULTS)
def test_only_what_the_hash_commits_to_is_remembered(
    node: Node, chain: ChainBuilder, argon: list[bytes], code: Refusal | Wait, fault: Fault
) -> None:
    first, good = with_a_transfer(chain)
    node.submit(first)
    data = faulty(chain.head_after(first), good, "p", [fault])
    assert node.submit(data) == [code]
    argon.clear()
    assert node.submit(data) == [Refusal.KNOWN_INVALID if code in REMEMBERED else code]
    assert argon == []
    node.chain_manager.stop()


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
    make_node: MakeNode, chain: ChainBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svcd.node.chain_manager.REMEMBERED_INVALID", 3)
    node = make_node()
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
    b = chain.chain("genesis: b[1..3]\ngenesis: c[1..5]\nc2 has an invalid state root")
    assert node.submit(*(b[f"b{n}"] for n in (1, 2, 3))) == [CONNECTED] * 3
    assert node.submit(b["c1"], b["c2"]) == [SIDE, SIDE]
    outcomes = node.submit(b["c3"], b["c4"], b["c5"])
    assert outcomes[-2:] == [Refusal.ANCESTOR] * 2
    assert node.submit(b["c2"], b["c3"]) == [Refusal.KNOWN_INVALID] * 2
    assert node.submit(b["c1"]) == [KNOWN]
    assert node.tip == b["b3"].header.hash
    node.check()


# Orphans


def test_parents_come_before_children_in_a_batch(node: Node, chain: ChainBuilder) -> None:
    first, second, third = chain.chain("genesis: b[1..3]").values()
    assert node.submit(second, first, third) == [Wait.ORPHAN, CONNECTED, Wait.ORPHAN]


# One block


def test_one_block_by_itself(node: Node, chain: ChainBuilder) -> None:
    def submit(block: Block) -> BlockStatus:
        return result_of(Deferred.fromCoroutine(node.chain_manager.submit_block(block.wire())))

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
        body = b'{"block":' + data + b"}"
        outcome, block_hash = result_of(Deferred.fromCoroutine(node.chain_manager.submit_posted(body)))
        return code_of(outcome), block_hash

    first, second = chain.chain("genesis: b[1..2]").values()
    bad = chain.block(break_=Refusal.WORK)
    assert submit(second.wire()) == (Wait.ORPHAN, second.header.hash)
    assert submit(bad.wire()) == (Refusal.WORK, bad.header.hash)
    assert submit(first.wire()) == (CONNECTED, first.header.hash)
    assert submit(b"nonsense") == (Refusal.ENCODING, b"")


def test_a_posted_block_may_be_spelled_in_another_way(node: Node, chain: ChainBuilder) -> None:
    """What is kept and handed on is canonical."""
    block = chain.block()
    body = json.dumps({"block": json.loads(block.wire())}, indent=2, sort_keys=False).encode()
    assert result_of(Deferred.fromCoroutine(node.chain_manager.submit_posted(body))) == (CONNECTED, block.header.hash)
    stored = node.chain_manager.reader.stored(block.header.hash)
    assert stored is not None
    transfers = b",".join(node.chain_manager.reader.bodies(stored))
    assert node.chain_manager.reader.block_header(stored, node.chain_manager.params).wire(transfers) == block.wire()


def test_a_posted_block_that_is_early_is_kept_whatever_its_spelling(node: Node, chain: ChainBuilder) -> None:
    soon = node.chain.params.slot_at(int(node.clock.seconds() * 1000)) + node.chain.params.drift_slots + 1
    block = chain.block(slot=soon)
    body = json.dumps({"block": json.loads(block.wire())}).encode()
    outcome, block_hash = result_of(Deferred.fromCoroutine(node.chain_manager.submit_posted(body)))
    assert (code_of(outcome), block_hash) == (Wait.EARLY, block.header.hash)
    node.clock.advance(node.chain_manager.params.slot_seconds)
    assert node.tip == block.header.hash


def test_the_genesis_as_it_is_shown_is_known(node: Node) -> None:
    params, reader = node.chain_manager.params, node.chain_manager.reader
    stored = reader.stored(params.genesis_hash)
    assert stored is not None
    shown = reader.block_header(stored, params).wire(b"")
    assert node.submit(shown) == [KNOWN]
    body = b'{"block":' + shown + b"}"
    assert result_of(Deferred.fromCoroutine(node.chain_manager.submit_posted(body))) == (KNOWN, params.genesis_hash)
    other = shown.replace(b'"slot":"0"', b'"slot":"1"')
    assert node.submit(other) == [Refusal.BLOCK_SIGNATURE], "another block of that height is not the genesis"


# Headers ahead of their blocks


def checked(node: Node, parent: ChainPoint, *blocks: Block) -> HeaderCheck:
    return result_of(
        Deferred.fromCoroutine(node.chain_manager.check_headers(parent, [block.header for block in blocks]))
    )


def test_headers_of_a_chain(node: Node, chain: ChainBuilder, argon: list[bytes]) -> None:
    blocks = list(chain.chain("genesis: b[1..5]\nb2 pays 5 from alice to bob").values())
    argon.clear()
    check = checked(node, chain.head_after(None), *blocks)
    assert check.heads == [chain.head_after(block) for block in blocks]
    assert check.failure is None
    assert len(argon) == 5
    assert node.submit(*blocks) == [CONNECTED] * 5
    assert len(argon) == 5, "their blocks need no work again"


def test_parsed_blocks_are_taken_in_as_well(node: Node, chain: ChainBuilder) -> None:
    blocks = list(chain.chain("genesis: b[1..3]\nb2 pays 5 from alice to bob").values())
    assert result_of(node.chain_manager.submit_blocks(blocks)) == [CONNECTED] * 3
    assert node.tip == blocks[-1].header.hash
    node.check()


def test_a_forged_signature_on_a_header_that_was_checked(node: Node, chain: ChainBuilder) -> None:
    block = chain.block()
    checked(node, chain.head_after(None), block)
    forged = Block(evolve(block.header, signature=bytes(64)), ())
    assert [code_of(outcome) for outcome in result_of(node.chain_manager.submit_blocks([forged]))] == [
        Refusal.BLOCK_SIGNATURE
    ]
    assert node.submit(block) == [CONNECTED]


@pytest.mark.parametrize(
    "rule", [Refusal.WORK, Refusal.BLOCK_SIGNATURE, Refusal.CONSENSUS_ROOT, Refusal.SLOT, Refusal.HEIGHT]
)
def test_headers_up_to_the_first_that_breaks_a_rule(node: Node, chain: ChainBuilder, rule: Refusal) -> None:
    b1 = chain.block()
    bad = chain.block(b1, break_=rule)
    check = checked(node, chain.head_after(None), b1, bad, chain.block(bad))
    assert check.heads == [chain.head_after(b1)]
    assert isinstance(check.failure, RuleViolation)
    assert check.failure.code is rule


def test_headers_that_are_not_a_chain(node: Node, chain: ChainBuilder) -> None:
    blocks = list(chain.chain("genesis: b[1..3]").values())
    check = checked(node, chain.head_after(None), blocks[0], blocks[2])
    assert check.heads == [chain.head_after(blocks[0])]
    assert isinstance(check.failure, RuleViolation)
    assert check.failure.code is Refusal.ANCESTOR


def test_an_early_header_ends_the_chain_for_now(node: Node, chain: ChainBuilder, argon: list[bytes]) -> None:
    b1 = chain.block()
    early = chain.block(b1, slot=10**6)
    argon.clear()
    check = checked(node, chain.head_after(None), b1, early)
    assert check.heads == [chain.head_after(b1)]
    assert isinstance(check.failure, NotYet)
    assert check.failure.code is Wait.EARLY
    assert len(argon) == 1


def test_a_header_whose_block_was_found_invalid_is_known(node: Node, chain: ChainBuilder, argon: list[bytes]) -> None:
    """A chain whose state is invalid is remembered, and its work counts no more."""
    b1 = chain.block()
    bad = chain.block(b1, break_=Refusal.STATE_ROOT)
    after = chain.block(bad)
    assert checked(node, chain.head_after(None), b1, bad, after).failure is None
    assert node.submit(b1, bad) == [CONNECTED, Refusal.STATE_ROOT]
    argon.clear()
    check = checked(node, chain.head_after(None), b1, bad, after)
    assert check.heads == [chain.head_after(b1)]
    assert isinstance(check.failure, RuleViolation)
    assert check.failure.code is Refusal.KNOWN_INVALID
    assert argon == []


DRIFT = TEST_PARAMS.drift_slots


class Bench:
    """Early blocks with a clock at the beginning of slot 50,000, and what was handed in again."""

    def __init__(self) -> None:
        self.clock: Clock = late_clock()
        self.due: list[bytes] = []
        self.early = FutureBlocks(self.clock, TEST_PARAMS, self.take)

    def take(self, data: bytes, source: str) -> None:
        assert source == "a peer"
        self.due.append(data)

    def check(self, name: bytes, ahead: int) -> str | None:
        """What is said to a block so many slots beyond the present one; None if it is not early."""
        header = SimpleNamespace(hash=name * 32, slot=LATE + ahead)
        reason = self.early.hold_if_future(SimpleNamespace(header=header, wire=lambda: name), "a peer")
        if reason is None:
            return None
        return reason.detail if reason.code is Wait.EARLY else f"not early, but {reason.code}"


@pytest.fixture
def bench() -> Bench:
    return Bench()


KEPT = "the block is kept until it is due"
DROPPED = "send the block again when it is due"


@pytest.mark.parametrize("ahead", [-LATE, 0, DRIFT])
def test_a_block_within_the_drift_is_not_early(bench: Bench, ahead: int) -> None:
    assert bench.check(b"a", ahead) is None
    assert len(bench.clock.getDelayedCalls()) == 0


@pytest.mark.parametrize("ahead", [1, 2, MAX_SLOTS_AHEAD])
def test_a_block_within_sixty_slots_is_kept_until_it_is_due(bench: Bench, ahead: int) -> None:
    reason = bench.check(b"a", DRIFT + ahead)
    assert reason == f"slot {LATE + DRIFT + ahead} lies in the future; {KEPT}"
    bench.clock.advance(ahead - 0.001)
    assert bench.due == []
    bench.clock.advance(0.001)
    assert bench.due == [b"a"]
    assert bench.clock.getDelayedCalls() == []


def test_a_block_beyond_sixty_slots_is_dropped(bench: Bench) -> None:
    reason = bench.check(b"a", DRIFT + MAX_SLOTS_AHEAD + 1)
    assert reason == f"slot {LATE + DRIFT + MAX_SLOTS_AHEAD + 1} lies too far in the future; {DROPPED}"
    assert bench.clock.getDelayedCalls() == []


def test_sixty_four_are_kept_and_no_more(bench: Bench) -> None:
    names = [bytes([number]) for number in range(MAX_FUTURE_BLOCKS)]
    assert all((bench.check(name, DRIFT + 1) or "").endswith(KEPT) for name in names)
    assert len(bench.clock.getDelayedCalls()) == MAX_FUTURE_BLOCKS
    assert (bench.check(b"\xff", DRIFT + 1) or "").endswith(DROPPED)
    assert (bench.check(names[7], DRIFT + 1) or "").endswith(KEPT), "it is there already"
    assert len(bench.clock.getDelayedCalls()) == MAX_FUTURE_BLOCKS
    bench.clock.advance(1)
    assert bench.due == names
    assert (bench.check(b"\xff", DRIFT + 2) or "").endswith(KEPT)


def test_a_block_is_kept_once(bench: Bench) -> None:
    bench.check(b"a", DRIFT + 3)
    bench.clock.advance(1)
    bench.check(b"a", DRIFT + 3)
    assert len(bench.clock.getDelayedCalls()) == 1
    bench.clock.advance(10)
    assert bench.due == [b"a"]


def test_blocks_come_in_the_order_of_their_slots(bench: Bench) -> None:
    for name, ahead in {b"c": 9, b"a": 1, b"b": 5}.items():
        bench.check(name, DRIFT + ahead)
    for _ in range(10):
        bench.clock.advance(1)
    assert bench.due == [b"a", b"b", b"c"]


def test_in_the_middle_of_a_slot(bench: Bench) -> None:
    bench.clock.advance(0.4)
    bench.check(b"a", DRIFT + 1)
    bench.clock.advance(0.599)
    assert bench.due == []
    bench.clock.advance(0.002)
    assert bench.due == [b"a"]


def test_letting_go(bench: Bench) -> None:
    bench.check(b"a", DRIFT + 1)
    bench.early.clear()
    assert bench.clock.getDelayedCalls() == []


# Through the chain manager


def test_an_early_block_is_connected_when_it_is_due(node: Node, chain: ChainBuilder, argon: list[bytes]) -> None:
    block = chain.block(slot=LATE + DRIFT + 3)
    argon.clear()
    assert node.submit(block) == [Wait.EARLY]
    assert len(argon) == 1
    assert not node.holds(block)
    node.clock.advance(2)
    assert not node.holds(block)
    node.clock.advance(1)
    assert node.tip == block.header.hash
    assert node.submit(block) == [KNOWN]


def test_a_held_block_that_comes_again_is_early_and_costs_no_work(
    node: Node, chain: ChainBuilder, argon: list[bytes]
) -> None:
    block = chain.block(slot=LATE + DRIFT + 3)
    child = chain.block(block, slot=LATE + DRIFT + 4)
    node.submit(block)
    argon.clear()
    assert node.submit(block) == [Wait.EARLY]
    assert argon == []
    assert node.submit(block, child) == [Wait.EARLY, Wait.EARLY], "its child is held with it"
    node.clock.advance(4)
    assert node.tip == child.header.hash


def test_a_held_block_whose_slot_has_begun_by_a_new_time_is_connected(node: Node, chain: ChainBuilder) -> None:
    block = chain.block(slot=LATE + DRIFT + 50)
    node.submit(block)
    node.clock.unix_seconds = lambda: node.clock.seconds() + 50  # type: ignore[attr-defined]
    assert node.submit(block) == [CONNECTED]
    node.clock.advance(50)
    assert node.tip == block.header.hash


def test_an_early_block_is_never_invalid(node: Node, chain: ChainBuilder) -> None:
    kept, dropped = chain.block(slot=LATE + DRIFT + 60), chain.block(slot=LATE + DRIFT + 61, producer="q")
    for _ in range(3):
        assert node.submit(kept, dropped) == [Wait.EARLY, Wait.EARLY]
    node.clock.advance(61)
    assert node.tip == kept.header.hash
    assert node.submit(dropped)[0] in (CONNECTED, SIDE)


def test_a_place_costs_the_work_of_a_block(node: Node, chain: ChainBuilder) -> None:
    """Else sixty-four blocks that cost nothing would take all the places, and honest ones be sent away."""
    for number in range(MAX_FUTURE_BLOCKS):
        block = chain.block(slot=LATE + DRIFT + 60, producer=f"p{number}", break_=Refusal.WORK)
        assert node.submit(block) == [Refusal.WORK]
    honest = chain.block(slot=LATE + DRIFT + 1)
    assert node.submit(honest) == [Wait.EARLY]
    node.clock.advance(1)
    assert node.tip == honest.header.hash


def test_an_early_block_is_fully_checked_when_it_is_due(node: Node, chain: ChainBuilder) -> None:
    block = chain.block(slot=LATE + DRIFT + 1, break_=Refusal.STATE_ROOT)
    assert node.submit(block) == [Wait.EARLY]
    node.clock.advance(1)
    assert node.submit(block) == [Refusal.KNOWN_INVALID]


def test_an_early_block_has_to_fit_behind_its_parent(node: Node, chain: ChainBuilder) -> None:
    block = chain.block(slot=LATE + DRIFT + 1, break_=Refusal.BASE_TARGET)
    assert node.submit(block) == [Refusal.BASE_TARGET]
    assert node.clock.getDelayedCalls() == []


def test_children_of_an_early_block_wait_with_it(node: Node, chain: ChainBuilder) -> None:
    early = chain.block(slot=LATE + DRIFT + 1)
    child = chain.block(early, slot=LATE + DRIFT + 2)
    assert node.submit(early, child) == [Wait.EARLY, Wait.EARLY]
    assert node.submit(chain.block(child, slot=LATE + DRIFT + 3)) == [Wait.ORPHAN], "alone it has no parent yet"
    node.clock.advance(2)
    assert node.tip == child.header.hash


def test_a_stopped_chain_manager_keeps_nothing(node: Node, chain: ChainBuilder) -> None:
    node.submit(chain.block(slot=LATE + DRIFT + 1))
    node.chain_manager.stop()
    assert node.clock.getDelayedCalls() == []


def test_a_clock_before_the_genesis(make_node: MakeNode, chain: ChainBuilder) -> None:
    clock = Clock()
    clock.advance(TEST_PARAMS.genesis_time / 1000 - 30)
    node = make_node(clock=clock)
    block = chain.block(slot=DRIFT + 1)
    assert node.submit(block) == [Wait.EARLY]
    clock.advance(31)
    assert node.tip == block.header.hash
