"""Blocks of our own: what goes in, in which order, and that the result is valid (docs/protocol.md 5, 12)."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.block import HEADER_ROOM, Block, Header
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import Refusal
from svcd.chain.params import DEVNET, MAINNET, NetworkParams
from svcd.chain.transaction import Transfer
from svcd.node.block_template import EXPIRY_MARGIN_SECONDS, BlockTemplate, by_fee_rate, create_template
from svcd.node.mempool import MempoolEntry
from svcd.node.work_search import WorkSearch
from tests.chains import COIN, TEST_PARAMS, ChainBuilder, key_of
from tests.node.bench import LATE, Node
from tests.node.conftest import MakeNode
from tests.node.connecting import CONNECTED

FEE = TEST_PARAMS.minimum_fee


def propose(
    node: Node, transfers: Iterable[Transfer] = (), *, slot: int = 10, producer: str = "p", **more: Any
) -> BlockTemplate:
    return create_template(node.chainstate.view(), seed=key_of(producer).seed, slot=slot, transfers=transfers, **more)


def seal(template: BlockTemplate, producer: str = "p", params: NetworkParams = TEST_PARAMS) -> Block:
    """The finished block."""
    nonce = WorkSearch(template.header, params.memory_kib, 0).run()
    assert nonce is not None
    return template.sealed(nonce, key_of(producer).seed)


def held(template: BlockTemplate) -> list[tuple[bytes, int]]:
    """Sender and nonce of the transfers that went in."""
    return [(transfer.sender, transfer.nonce) for transfer in template.transfers]


def of(sender: str, *nonces: int) -> list[tuple[bytes, int]]:
    return [(key_of(sender).hash, nonce) for nonce in nonces]


# What comes out is valid


def test_an_empty_block(node: Node) -> None:
    template = propose(node)
    assert template.transfers == ()
    assert node.submit(seal(template)) == [CONNECTED]
    node.check()


def test_a_block_with_transfers(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer("alice", "dave", 5), chain.transfer("bob", "alice", 6, reference="order-1")]
    template = propose(node, transfers, producer="alice")
    assert list(template.transfers) == transfers
    assert node.submit(seal(template, "alice")) == [CONNECTED]
    node.check()


def test_one_block_after_the_other(node: Node, chain: ChainBuilder) -> None:
    """The producer's multiplier grows, and targets and rewards change."""
    multipliers = []
    for number in range(1, 61):
        template = propose(node, [chain.transfer("alice", "bob", number)], slot=3 * number)
        assert node.submit(seal(template)) == [CONNECTED], number
        multipliers.append(template.header.multiplier)
    assert {10_000, 10_200, 10_400, 10_700, 11_000} == set(multipliers)
    node.check()


def test_assembling_leaves_no_trace(node: Node, chain: ChainBuilder) -> None:
    before = node.state()
    propose(node, [chain.transfer("alice", "dave", 5)])
    assert node.state() == before
    node.check()


@given(seeds=st.lists(st.sampled_from(["alice", "bob", "carol"]), min_size=1, max_size=3, unique=True))
def test_seals_are_signatures_of_the_producer(seeds: list[str]) -> None:
    header = ChainBuilder().block().header
    for name in seeds:
        unsigned = evolve(header, producer_key=key_of(name).public)
        block = BlockTemplate(unsigned, ()).sealed(bytes(8), key_of(name).seed)
        block.header.check_signature()


# What does not apply stays out


def test_transfers_that_do_not_apply_yet_stay_in_the_mempool(node: Node, chain: ChainBuilder) -> None:
    slot = 10
    future = TEST_PARAMS.slot_time(slot) + 1000 * TEST_PARAMS.transaction_future_seconds
    transfers = [
        chain.transfer("alice", "dave", 5 * COIN, nonce=0),
        chain.transfer("alice", "dave", 5 * COIN, nonce=2),
        chain.transfer("bob", "dave", 1000 * COIN, nonce=0),
        chain.transfer("bob", "dave", 1, nonce=0, timestamp=future + 1),
        chain.transfer("bob", "dave", 1, nonce=0, timestamp=future),
        chain.transfer("dave", "bob", 4 * COIN, nonce=0),
    ]
    template = propose(node, transfers, slot=slot)
    assert list(template.transfers) == [transfers[0], transfers[4], transfers[5]]
    assert node.submit(seal(template)) == [CONNECTED]


MARGIN = 1000 * EXPIRY_MARGIN_SECONDS


def expiring(chain: ChainBuilder, sender: str, left: int, **details: Any) -> Transfer:
    """A transfer that expires ``left`` ms after the slot LATE."""
    timestamp = chain.params.slot_time(LATE) - 1000 * chain.params.transaction_past_seconds + left
    return chain.transfer(sender, "carol", COIN, timestamp=timestamp, **details)


@pytest.mark.parametrize(
    ("left", "returned", "included"),
    [(MARGIN, False, True), (MARGIN - 1, False, False), (MARGIN - 1, True, True), (0, True, True), (-1, True, False)],
)
def test_transfers_that_expire_within_ten_minutes_are_left_out_unless_a_block_had_them(
    node: Node, chain: ChainBuilder, left: int, returned: bool, included: bool
) -> None:
    transfer, other = expiring(chain, "alice", left), expiring(chain, "bob", MARGIN)
    known = {transfer.txid} if returned else set()
    template = propose(node, [transfer, other], slot=LATE, returned=known)
    assert list(template.transfers) == [transfer, other][not included :]
    assert node.submit(seal(template)) == [CONNECTED]


def test_transfers_that_depend_on_an_omitted_one_take_no_room(make_node: MakeNode) -> None:
    """Otherwise transfers that no block includes, and that cost nothing, would keep all others out."""
    params = evolve(TEST_PARAMS, max_block_transactions=2)
    chain, node = ChainBuilder(params), make_node(params=params)
    stuck = [expiring(chain, "alice", MARGIN - 1), *(expiring(chain, "alice", MARGIN, fee=10**6) for _ in range(5))]
    others = [expiring(chain, "bob", MARGIN) for _ in range(2)]
    template = propose(node, [*stuck, *others], slot=LATE)
    assert list(template.transfers) == others


@pytest.mark.parametrize("left", [299_999, 300_000])
def test_a_template_omits_transfers_in_the_last_half_of_a_ten_minute_lifetime(make_node: MakeNode, left: int) -> None:
    params = evolve(TEST_PARAMS, transaction_past_seconds=600)
    chain, node = ChainBuilder(params), make_node(params=params)
    template = propose(node, [expiring(chain, "alice", left)], slot=LATE)
    assert len(template.transfers) == (left == 300_000)


def test_no_more_transfers_than_a_block_may_hold(make_node: MakeNode) -> None:
    params = evolve(TEST_PARAMS, max_block_transactions=5)
    chain, node = ChainBuilder(params), make_node(params=params)
    transfers = [chain.transfer("alice", "bob", number) for number in range(1, 9)]
    template = propose(node, transfers)
    assert list(template.transfers) == transfers[:5]
    assert node.submit(seal(template)) == [CONNECTED]
    assert node.submit(seal(propose(node, transfers[5:], slot=12))) == [CONNECTED]


def test_no_more_transfers_are_taken_from_the_pool_than_fit(node: Node, chain: ChainBuilder) -> None:
    drawn: list[int] = []

    def endless() -> Iterable[Transfer]:
        for number in range(10_000):
            drawn.append(number)
            yield chain.transfer("alice", "bob", 1, nonce=number)

    template = propose(node, endless())
    assert len(template.transfers) == len(drawn) - 1 == TEST_PARAMS.max_block_transactions


@pytest.mark.parametrize("spare", [-1, 0])
def test_a_block_has_no_more_bytes_than_allowed(make_node: MakeNode, spare: int) -> None:
    width = len(ChainBuilder().transfer("alice", "bob", 100).wire) + 1
    params = evolve(TEST_PARAMS, max_block_bytes=HEADER_ROOM + 5 * width + spare)
    chain, node = ChainBuilder(params), make_node(params=params)
    template = propose(node, [chain.transfer("alice", "bob", 100 + number) for number in range(9)])
    assert {len(transfer.wire) + 1 for transfer in template.transfers} == {width}
    assert len(template.transfers) == 5 + spare
    block = seal(template)
    assert len(block.wire()) <= params.max_block_bytes
    assert node.submit(block) == [CONNECTED]


def largest_header(params: NetworkParams) -> Header:
    """A header whose every number has as many digits as it ever may."""
    return Header(
        network_id=params.network_id,
        height=MAX_INTEGER,
        slot=MAX_INTEGER,
        parent_hash=bytes(32),
        producer_key=bytes(32),
        multiplier=max(points for _, points in params.multiplier_schedule),
        base_target=0,
        transactions_root=bytes(32),
        transaction_count=params.max_block_transactions,
        state_root=bytes(32),
        consensus_root=bytes(32),
    )


@pytest.mark.parametrize("params", [MAINNET, DEVNET, TEST_PARAMS], ids=lambda params: params.name)
def test_the_room_that_is_kept_for_the_header_is_enough(params: NetworkParams) -> None:
    assert len(largest_header(params).wire(b"")) <= HEADER_ROOM


# The order


def line(sender: str, *fees: int, chain: ChainBuilder, arrival: int = 0) -> tuple[MempoolEntry, ...]:
    transfers = [chain.transfer(sender, "zoe", 1, nonce=nonce, fee=fee) for nonce, fee in enumerate(fees)]
    return tuple(MempoolEntry(transfer, arrival + number) for number, transfer in enumerate(transfers))


def order(*lines: tuple[MempoolEntry, ...]) -> list[tuple[bytes, int]]:
    return [(transfer.sender, transfer.nonce) for transfer in by_fee_rate(best_first(lines))]


def best_first(lines: Iterable[tuple[MempoolEntry, ...]]) -> list[tuple[MempoolEntry, ...]]:
    """In the order in which the mempool gives them."""
    return sorted(lines, key=lambda line: (-line[0].rate, line[0].sequence))


def test_the_greatest_fee_per_byte_comes_first(chain: ChainBuilder) -> None:
    lines = [line(name, fee * FEE, chain=chain) for name, fee in {"alice": 1, "bob": 3, "carol": 2}.items()]
    assert order(*lines) == of("bob", 0) + of("carol", 0) + of("alice", 0)


def test_nonces_come_in_order_whatever_they_pay(chain: ChainBuilder) -> None:
    lines = [line("alice", FEE, 9 * FEE, 2 * FEE, chain=chain), line("bob", 3 * FEE, FEE, chain=chain, arrival=9)]
    assert order(*lines) == of("bob", 0) + of("alice", 0, 1, 2) + of("bob", 1)


def test_of_equal_fees_the_older_comes_first(chain: ChainBuilder) -> None:
    lines = [line("alice", FEE, chain=chain, arrival=2), line("bob", FEE, chain=chain, arrival=1)]
    assert order(*lines) == of("bob", 0) + of("alice", 0)


def test_bytes_count_as_well_as_the_fee(chain: ChainBuilder) -> None:
    long = chain.transfer("alice", "zoe", 1, nonce=0, fee=FEE + 100, reference="r" * 64)
    short = chain.transfer("bob", "zoe", 1, nonce=0, fee=FEE)
    assert list(by_fee_rate(best_first([(MempoolEntry(long, 1),), (MempoolEntry(short, 2),)]))) == [short, long]


def test_nothing_waits() -> None:
    assert list(by_fee_rate([])) == []


def test_no_more_lines_are_looked_at_than_are_needed(chain: ChainBuilder) -> None:
    """A block takes 2,000 transfers of the 50,000 that may wait."""
    asked: list[int] = []

    def lines() -> Iterator[tuple[MempoolEntry, ...]]:
        for number in range(50):
            asked.append(number)
            yield line(f"p{number}", (100 - number) * FEE, FEE, chain=chain, arrival=10 * number)

    assert len(list(islice(by_fee_rate(lines()), 3))) == len(asked) == 3


@given(
    fees=st.lists(st.lists(st.integers(FEE, 3 * FEE), min_size=1, max_size=4), max_size=4),
)
def test_every_transfer_comes_once_and_the_best_head_next(fees: list[list[int]]) -> None:
    chain = ChainBuilder()
    lines = [line(f"p{number}", *own, chain=chain, arrival=10 * number) for number, own in enumerate(fees)]
    rates = {entry.transfer.txid: entry.rate for own in lines for entry in own}
    left = [list(own) for own in lines]
    for transfer in by_fee_rate(best_first(lines)):
        heads = [own[0] for own in left if own]
        chosen = next(own for own in left if own and own[0].transfer is transfer)
        assert rates[transfer.txid] == max(entry.rate for entry in heads)
        chosen.pop(0)
    assert not any(left)


def test_a_proposal_is_refused_when_its_seal_is_by_somebody_else(node: Node) -> None:
    template = propose(node)
    nonce = WorkSearch(template.header, TEST_PARAMS.memory_kib, 0).run()
    assert nonce is not None
    assert node.submit(template.sealed(nonce, key_of("forger").seed)) == [Refusal.BLOCK_SIGNATURE]
