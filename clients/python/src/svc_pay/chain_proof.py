"""Chain proofs: some hundred headers, drawn by work, that stand for a chain of any length (docs/protocol.md 13).

The check reads the chain from the genesis to the tip, as headers and as nodes of the history tree for the blocks in
between. Without the participation work of the headers (:func:`check_work`), which comes last, a proof proves nothing.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from svc_pay.chain import Network, address_of, canonical, tagged_hash
from svc_pay.chain_rules import (
    WORK_LIMIT,
    ChainRules,
    block_work,
    effective_target,
)
from svc_pay.errors import InvalidInput, InvalidProof
from svc_pay.strict_json import decimal, elements, exact_fields, hex_bytes, must, whole

RECENT: Final = 100
"""The newest blocks, of which every header is in a proof."""
SAMPLES: Final = 32
"""Draws in each halving of the work toward the tip."""
MAX_MORE: Final = 8
"""Headers that neither the newest blocks nor a draw ask for, at most: each costs the checker an attempt of work."""
MAX_PROOF_BYTES: Final = 4 * 1024 * 1024

_CHAIN: Final = ("tip", "headers", "nodes")
_HEADER: Final = tuple(
    "height slot parentHash producerPublicKey multiplier transactionsRoot transactionCount stateRoot workNonce".split()
)
_WORK: Final = re.compile("0|[1-9a-f][0-9a-f]{0,63}")
_NO_TRANSACTIONS: Final = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")


@dataclass(frozen=True, slots=True)
class HistoryNode:
    """A perfect subtree of the history tree: a leaf has the hash of its block as its digest."""

    digest: bytes
    work: int
    """Of all its blocks."""
    slot: int
    """Of its last block."""
    clock: int
    """The difficulty clock of its last block."""

    @property
    def packed(self) -> bytes:
        """The bytes that are hashed."""
        return (
            self.digest + self.work.to_bytes(32, "big") + self.slot.to_bytes(8, "big") + self.clock.to_bytes(8, "big")
        )


@dataclass(frozen=True, slots=True)
class Header:
    """A header as a proof has it; its other fields follow from the chain before it."""

    height: int
    slot: int
    parent_hash: bytes
    producer_key: bytes
    multiplier: int
    transactions_root: bytes
    transaction_count: int
    state_root: bytes
    work_nonce: bytes


@dataclass(frozen=True, slots=True)
class ShownHeader:
    """A header of a checked proof."""

    header: Header
    hash: bytes
    core_hash: bytes
    target: int
    """The bound of its work value."""
    before: int
    """The cumulative work of the chain before the block."""
    after: int
    """The same with the block."""


@dataclass(frozen=True, slots=True)
class Head:
    """The last block that was read, and all that its child is checked against."""

    hash: bytes
    """Empty if the proof does not show it."""
    height: int
    slot: int
    clock: int
    work: int
    """Cumulative."""
    mountains: tuple[HistoryNode, ...]
    """Of the tree over all blocks up to this one, the largest first."""


@dataclass(frozen=True, slots=True)
class ChainProof:
    """A parsed proof, of which only the form has been checked."""

    tip: bytes
    headers: tuple[Header, ...]
    nodes: tuple[HistoryNode, ...]


@dataclass(frozen=True, slots=True)
class ReadChain:
    """A checked chain; it holds once the work of its headers has been checked."""

    head: Head
    headers: tuple[ShownHeader, ...]
    """By height."""


# Parsing


def parse_chain_proof(value: object, network: Network) -> ChainProof:
    """The chain proof in the member ``proof`` of an answer; raises InvalidProof."""
    fields = exact_fields(value, ("chainId", "genesisHash", *_CHAIN), "proof")
    check_network(fields, network)
    return _parse_chain(fields)


def parse_chain_section(value: object) -> ChainProof:
    """The chain proof in the member ``chain`` of a payment proof; raises InvalidProof."""
    return _parse_chain(exact_fields(value, _CHAIN, "chain"))


def check_network(fields: Mapping[str, object], network: Network) -> None:
    """Raise InvalidProof unless a proof is of a network."""
    must(fields["chainId"] == network.chain_id, f"the proof is for another network; it must be for {network.chain_id}")
    same = hex_bytes(fields["genesisHash"], 32, "genesisHash").hex() == network.genesis_hash
    must(same, f"the proof is for another network that calls itself {network.chain_id}: its genesis differs")


def _parse_chain(fields: Mapping[str, object]) -> ChainProof:
    headers, nodes = elements(fields["headers"], "headers"), elements(fields["nodes"], "nodes")
    return ChainProof(
        tip=hex_bytes(fields["tip"], 32, "tip"),
        headers=tuple([_parse_header(each, f"headers[{at}]") for at, each in enumerate(headers)]),
        nodes=tuple([_parse_node(each, f"nodes[{at}]") for at, each in enumerate(nodes)]),
    )


def _parse_header(value: object, what: str) -> Header:
    fields = exact_fields(value, _HEADER, what)
    return Header(
        height=decimal(fields["height"], f"height of {what}"),
        slot=decimal(fields["slot"], f"slot of {what}"),
        parent_hash=hex_bytes(fields["parentHash"], 32, f"parentHash of {what}"),
        producer_key=hex_bytes(fields["producerPublicKey"], 32, f"producerPublicKey of {what}"),
        multiplier=whole(fields["multiplier"], f"multiplier of {what}"),
        transactions_root=hex_bytes(fields["transactionsRoot"], 32, f"transactionsRoot of {what}"),
        transaction_count=whole(fields["transactionCount"], f"transactionCount of {what}"),
        state_root=hex_bytes(fields["stateRoot"], 32, f"stateRoot of {what}"),
        work_nonce=hex_bytes(fields["workNonce"], 8, f"workNonce of {what}"),
    )


def _parse_node(value: object, what: str) -> HistoryNode:
    parts = elements(value, what)
    must(len(parts) == 4, f"{what} must have digest, work, slot and clock")
    digest, work, slot, clock = parts
    if not isinstance(work, str) or not _WORK.fullmatch(work):
        raise InvalidProof(f"the work of {what} must be at most 64 hex characters without a leading 0")
    return HistoryNode(
        hex_bytes(digest, 32, f"the digest of {what}"),
        int(work, 16),
        decimal(slot, f"the slot of {what}"),
        decimal(clock, f"the clock of {what}"),
    )


# The history tree (section 9)


def _inner(left: HistoryNode, right: HistoryNode) -> HistoryNode:
    digest = tagged_hash("svc/history-node/v1", left.packed + right.packed)
    return HistoryNode(digest, left.work + right.work, right.slot, right.clock)


def _appended(
    mountains: tuple[HistoryNode, ...], blocks: int, node: HistoryNode, level: int
) -> tuple[HistoryNode, ...]:
    """The mountains over ``blocks`` blocks with the 2^level blocks of ``node`` on the right."""
    while blocks >> level & 1:
        node = _inner(mountains[-1], node)
        mountains, level = mountains[:-1], level + 1
    return (*mountains, node)


def _history_root(mountains: Sequence[HistoryNode]) -> bytes:
    *others, root = mountains
    for mountain in reversed(others):
        root = _inner(mountain, root)
    return tagged_hash("svc/history-root/v1", root.packed)


def _first_level(first: int, end: int) -> int:
    """The level of the first of the fewest perfect subtrees over the blocks from height ``first`` to ``end`` - 1."""
    level = 0
    while not first >> level & 1 and first + (2 << level) <= end:
        level += 1
    return level


# Checking


def check_chain(
    proof: ChainProof, network: Network, *, minimum_work: int = 0, recent: int = RECENT, samples: int = SAMPLES
) -> ReadChain:
    """All that a proof shows, but the work of its headers; raises InvalidProof.

    ``minimum_work`` is the cumulative work that the chain must have. ``recent`` and ``samples`` differ from the
    constants only for test vectors with short chains.
    """
    reader = _ChainReader(network, proof.nodes)
    for header in proof.headers:
        reader.read(header)
    left = len(proof.nodes) - reader.nodes_read
    must(left == 0, f"{left} nodes of the proof belong to no gap between its headers")
    head, shown = reader.head, reader.shown
    must(head.hash == proof.tip, f"the last block of the proof is {head.hash.hex()}, and not its tip {proof.tip.hex()}")
    asked = set(range(max(1, head.height - recent + 1), head.height + 1))
    for height in sorted(asked):
        must(height in shown, f"the header at height {height} is missing; the newest {recent} must be there")
    headers = tuple(shown.values())
    if head.height > recent:
        asked |= _heights_drawn(head.hash, headers, below=shown[head.height - recent + 1].before, samples=samples)
    more = len(shown) - len(asked)
    must(more <= MAX_MORE, f"{more} headers of the proof are ones that nothing asks for; at most {MAX_MORE} may be")
    sentence = f"the chain has the work of {head.work:,} hashes, less than the required {minimum_work:,}"
    must(head.work >= minimum_work, sentence)
    return ReadChain(head, headers)


class _ChainReader:
    """The chain as far as it has been read, from left to right."""

    def __init__(self, network: Network, nodes: Sequence[HistoryNode]) -> None:
        genesis = bytes.fromhex(network.genesis_hash)
        self._network = network
        self._rules = network.rules
        self._nodes = nodes
        self.nodes_read = 0
        self.head = Head(genesis, height=0, slot=0, clock=0, work=0, mountains=(HistoryNode(genesis, 0, 0, 0),))
        self.shown: dict[int, ShownHeader] = {}
        """By height, ascending."""
        self._producers: dict[int, str] = {}
        """The addresses of the producers of the headers that were read, by height."""

    def read(self, header: Header) -> None:
        """Read a header, and before it the nodes up to it; raises InvalidProof."""
        must(header.height > self.head.height, "the heights of the headers must ascend from 1")
        while self.head.height + 1 < header.height:
            self._skip(_first_level(self.head.height + 1, header.height))
        self._show(header)

    def _skip(self, level: int) -> None:
        before, blocks = self.head, 1 << level
        first = before.height + 1
        if self.nodes_read == len(self._nodes):
            raise InvalidProof(f"the nodes over the blocks from height {first} on are missing")
        node = self._nodes[self.nodes_read]
        self.nodes_read += 1
        possible = _is_possible(self._rules, before, node, blocks)
        must(possible, f"{blocks} blocks from height {first} on cannot have slot, clock and work of their node")
        self.head = Head(
            # The digest of a leaf is the hash of its block.
            hash=b"" if level else node.digest,
            height=before.height + blocks,
            slot=node.slot,
            clock=node.clock,
            work=_sum(before.work, node.work),
            mountains=_appended(before.mountains, first, node, level),
        )

    def _show(self, header: Header) -> None:
        before, rules, height = self.head, self._rules, header.height
        must(header.slot > before.slot, f"the slot at height {height} must be greater than {before.slot}")
        builds = not before.hash or header.parent_hash == before.hash
        must(builds, f"the header at height {height} does not build on the block before it")
        self._check_producer(header)
        must(header.multiplier in rules.multipliers, f"multiplier {header.multiplier} is not in the schedule")
        count, most = header.transaction_count, rules.max_block_transactions
        must(count <= most, f"a block has at most {most} transactions, not {count}")
        fits = (count == 0) == (header.transactions_root == _NO_TRANSACTIONS)
        must(fits, "transactionsRoot is not that of so many transactions")
        base_target = rules.next_target(height, before.clock)
        work = _sum(before.work, block_work(base_target))
        clock = 0 if height == 1 else before.clock + min(header.slot - before.slot, rules.gap_cap_slots)
        core_hash = self._core_hash(header, base_target, self._consensus_root(header, clock=clock, work=work))
        found = tagged_hash("svc/block-id/v4", core_hash + header.work_nonce)
        target = effective_target(base_target, header.multiplier)
        self.shown[height] = ShownHeader(header, found, core_hash, target, before.work, work)
        leaf = HistoryNode(found, work - before.work, header.slot, clock)
        mountains = _appended(before.mountains, height, leaf, 0)
        self.head = Head(found, height=height, slot=header.slot, clock=clock, work=work, mountains=mountains)

    def _check_producer(self, header: Header) -> None:
        """Raise InvalidProof if the list in force does not let the producer make the block (section 8a).

        Of the producers before it, those count that the proof shows.
        """
        height, listed = header.height, self._rules.producers_at(header.height)
        if not listed:
            return
        own, between = address_of(header.producer_key, self._network), len(listed) // 2
        must(
            own in listed,
            f"the producer of the block at height {height} is not one of the {len(listed)} that may make it",
        )
        before = {self._producers.get(each) for each in range(height - between, height)}
        must(
            own not in before,
            f"the producer of the block at height {height} made one of the {between} blocks before it",
        )
        self._producers[height] = own

    def _consensus_root(self, header: Header, *, clock: int, work: int) -> bytes:
        rules, height = self._rules, header.height
        numbers = (height, header.slot, clock)
        return tagged_hash(
            "svc/consensus/v1",
            rules.rules_hash
            + bytes.fromhex(self._network.genesis_hash)
            + b"".join(number.to_bytes(8, "big") for number in numbers)
            + work.to_bytes(32, "big")
            + rules.next_target(height + 1, clock).to_bytes(32, "big")
            + rules.issued_after(height).to_bytes(8, "big")
            + _history_root(self.head.mountains),
        )

    def _core_hash(self, header: Header, base_target: int, consensus_root: bytes) -> bytes:
        core = {
            "baseTarget": f"{base_target:064x}",
            "consensusRoot": consensus_root.hex(),
            "height": str(header.height),
            "multiplier": header.multiplier,
            "networkId": self._network.network_id,
            "parentHash": header.parent_hash.hex(),
            "producerPublicKey": header.producer_key.hex(),
            "slot": str(header.slot),
            "stateRoot": header.state_root.hex(),
            "transactionCount": header.transaction_count,
            "transactionsRoot": header.transactions_root.hex(),
            "version": 4,
        }
        return tagged_hash("svc/block/v4", canonical(core))


def _sum(work: int, more: int) -> int:
    must(work + more < WORK_LIMIT, "the work of all blocks together must be below 2^256")
    return work + more


def _is_possible(rules: ChainRules, before: Head, node: HistoryNode, blocks: int) -> bool:
    """Whether so many blocks after ``before`` can have slot, clock and work of ``node``.

    Otherwise thousands of easy blocks that were never made could raise the difficulty until one lucky block outweighs
    the real chain.
    """
    first = before.height + 1
    if first == 1:
        return node.clock == 0 and node.slot > 0 and node.work == block_work(rules.initial_target)
    if not blocks <= node.clock - before.clock <= min(node.slot - before.slot, rules.gap_cap_slots * blocks):
        return False
    step = max(1, rules.slots_per_block - 1)
    counted = min(blocks, max(1, rules.half_life_slots // step))
    lag = node.clock - rules.slots_per_block * (first + blocks - 2) + step * counted
    return node.work >= counted * block_work(rules.target_at(lag))


def _heights_drawn(tip: bytes, headers: Sequence[ShownHeader], *, below: int, samples: int) -> set[int]:
    """The heights of the headers on which the draws from the hash of the tip fall; raises InvalidProof if one misses.

    ``below`` is the cumulative work of the last block before the recent ones.
    """
    heights: set[int] = set()
    total, halving = headers[-1].before, 0
    while total >> halving > total - below:
        low, high = total - (total >> halving), total - (total >> halving + 1)
        for number in range(samples):
            place = tip + halving.to_bytes(8, "big") + number.to_bytes(8, "big")
            drawn = low + int.from_bytes(tagged_hash("svc/sample/v1", place), "big") % (high - low)
            at = bisect_right(headers, drawn, key=lambda each: each.before) - 1
            falls = at >= 0 and drawn < headers[at].after
            must(falls, f"the header on which the draw at the work {drawn:x} falls is missing")
            heights.add(headers[at].header.height)
        halving += 1
    return heights


# Participation work (section 6)


def work_values(network: Network) -> Callable[[ShownHeader], int]:
    """What computes the work value of a header by Argon2id; raises InvalidInput if argon2-cffi is not installed."""
    try:
        from argon2.low_level import Type, hash_secret_raw
    except ImportError:
        raise InvalidInput("checking a chain needs Argon2id: pip install argon2-cffi") from None
    memory_kib = network.rules.memory_kib

    def value_of(shown: ShownHeader) -> int:
        value = hash_secret_raw(
            shown.core_hash + shown.header.work_nonce,
            b"svc/work/v4/salt",
            time_cost=1,
            memory_cost=memory_kib,
            parallelism=1,
            hash_len=32,
            type=Type.ID,
            version=0x13,
        )
        return int.from_bytes(value, "big")

    return value_of


def check_work(
    headers: Sequence[ShownHeader],
    network: Network,
    *,
    checked: set[bytes],
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Check the work of headers on all processors, the last header first; raises InvalidProof.

    ``checked`` has the hashes of the headers whose work was checked before, and gets those of these.
    """
    left = [shown for shown in reversed(headers) if shown.hash not in checked]
    value_of = work_values(network)
    pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="svc-pay-work")
    try:
        for done, (shown, value) in enumerate(zip(left, pool.map(value_of, left), strict=True), 1):
            must(value < shown.target, f"the work of block {shown.hash.hex()} does not reach its target")
            checked.add(shown.hash)
            if progress is not None:
                progress(done, len(left))
    finally:
        # After a header without work the rest is of no interest.
        pool.shutdown(cancel_futures=True)
