"""Chain proofs: some hundred headers, drawn by work, that stand for a chain of any length (docs/protocol.md 13).

The check reads the chain from the genesis to the tip, as headers and as nodes of the history tree for the blocks in
between. The participation work of the headers takes seconds, and is left to the caller, who checks each of
:attr:`ProvenChain.headers` in threads (:func:`svcd.chain.work.check_work`). Without it a proof proves nothing.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final

from attrs import evolve, frozen

from ..chain.address import key_hash
from ..chain.block import Header
from ..chain.difficulty import next_target, target_at
from ..chain.encoding import decimal_u53, exact_fields, hex_bytes, integer, tagged_hash
from ..chain.errors import Refusal, RuleViolation
from ..chain.history import Node, clock_of, digest_of, parse_node, slot_of, subtrees_between, work_of
from ..chain.params import NetworkParams
from ..chain.transition import (
    ChainHead,
    ChainPoint,
    check_multiplier,
    check_producer,
    check_transaction_count,
    consensus_root,
    genesis_head,
    history_leaf,
    point_after,
)
from ..chain.work import block_work

RECENT: Final = 100
"""The newest blocks, of which every header is in the proof."""
SAMPLES: Final = 32
"""Draws in each halving of the work toward the tip."""
MAX_MORE: Final = 8
"""Headers that neither the newest blocks nor a draw ask for, at most: each costs the checker an attempt of work."""
MAX_PROOF_BYTES: Final = 4 * 1024 * 1024

_PROOF: Final = frozenset("chainId genesisHash tip headers nodes".split())
_CHAIN: Final = frozenset("tip headers nodes".split())
HEADER_FIELDS: Final = tuple(
    "height slot parentHash producerPublicKey multiplier transactionsRoot transactionCount stateRoot workNonce".split()
)
"""The members of a header in a proof; the others follow from the chain before it."""
_HEADER: Final = frozenset(HEADER_FIELDS)
_WORK_LIMIT: Final = 2**256


class Unproved(Exception):
    """A proof does not prove what it claims; the text is one sentence that says why."""


@frozen
class ChainProof:
    """A parsed chain proof; only its form has been checked."""

    tip: bytes
    headers: tuple[Header, ...]
    """By height; their baseTarget, consensusRoot and signature are not in a proof, and have arbitrary values here."""
    nodes: tuple[Node, ...]


@frozen
class ProvenChain:
    """The result of a check; it holds once the participation work of all headers has been checked."""

    tip: ChainPoint
    headers: Mapping[int, Header]
    """Every header of the proof by height, the tip first, which is the first to be checked for its work."""


# Parsing


def parse_chain_proof(value: object, params: NetworkParams) -> ChainProof:
    """The chain proof in the JSON object ``proof`` of a node's answer; raises Unproved."""
    try:
        fields = exact_fields(value, _PROOF, "proof")
        check_network(fields, params)
        return _parse_chain({name: fields[name] for name in _CHAIN}, params)
    except RuleViolation as violation:
        raise Unproved(f"this is not a chain proof: {violation.detail}") from None


def parse_chain_section(value: object, params: NetworkParams) -> ChainProof:
    """The chain proof in the member ``chain`` of a payment proof; raises RuleViolation."""
    return _parse_chain(exact_fields(value, _CHAIN, "chain"), params)


def network_fields(params: NetworkParams) -> dict[str, object]:
    """The members of a proof that :func:`check_network` checks."""
    return {"chainId": params.chain_id, "genesisHash": params.genesis_hash.hex()}


def check_network(fields: Mapping[str, object], params: NetworkParams) -> None:
    """Raise Unproved unless ``chainId`` and ``genesisHash`` of a proof are those of the network."""
    if fields["chainId"] != params.chain_id:
        raise Unproved(f"the proof is for another network; it must be for {params.chain_id}")
    if hex_bytes(fields["genesisHash"], 32, "genesisHash") != params.genesis_hash:
        raise Unproved(f"the proof is for another network that calls itself {params.chain_id}: its genesis differs")


def _parse_chain(fields: Mapping[str, object], params: NetworkParams) -> ChainProof:
    headers, nodes = fields["headers"], fields["nodes"]
    if type(headers) is not list or type(nodes) is not list:
        raise RuleViolation(Refusal.FORMAT, "headers and nodes must be arrays")
    return ChainProof(
        tip=hex_bytes(fields["tip"], 32, "tip"),
        headers=tuple([_parse_header(each, f"headers[{number}]", params) for number, each in enumerate(headers)]),
        nodes=tuple([parse_node(each, f"nodes[{number}]") for number, each in enumerate(nodes)]),
    )


def _parse_header(value: object, what: str, params: NetworkParams) -> Header:
    fields = exact_fields(value, _HEADER, what)
    return Header(
        network_id=params.network_id,
        height=decimal_u53(fields["height"], f"height of {what}"),
        slot=decimal_u53(fields["slot"], f"slot of {what}"),
        parent_hash=hex_bytes(fields["parentHash"], 32, f"parentHash of {what}"),
        producer_key=hex_bytes(fields["producerPublicKey"], 32, f"producerPublicKey of {what}"),
        multiplier=integer(fields["multiplier"], f"multiplier of {what}"),
        base_target=0,
        transactions_root=hex_bytes(fields["transactionsRoot"], 32, f"transactionsRoot of {what}"),
        transaction_count=integer(fields["transactionCount"], f"transactionCount of {what}"),
        state_root=hex_bytes(fields["stateRoot"], 32, f"stateRoot of {what}"),
        consensus_root=bytes(32),
        work_nonce=hex_bytes(fields["workNonce"], 8, f"workNonce of {what}"),
    )


# Checking


def check_chain(
    proof: ChainProof, params: NetworkParams, *, minimum_work: int = 0, recent: int = RECENT, samples: int = SAMPLES
) -> ProvenChain:
    """Everything that the proof shows, but the participation work of its headers; raises Unproved.

    ``minimum_work`` is the cumulative work that the chain must have. ``recent`` and ``samples`` differ from the
    constants only for test vectors with short chains.
    """
    reading = _ProofReader(params, proof.nodes)
    try:
        for header in proof.headers:
            reading.skip_to(header.height)
            reading.header(header)
    except RuleViolation as violation:
        raise Unproved(violation.detail) from None
    if reading.nodes_left:
        raise Unproved(f"{reading.nodes_left} nodes of the proof belong to no gap between its headers")
    tip, shown = reading.at.point, reading.shown
    if tip.hash != proof.tip:
        raise Unproved(f"the last block of the proof is {tip.hash.hex()}, and not its tip {proof.tip.hex()}")
    asked = set(range(max(1, tip.height - recent + 1), tip.height + 1))
    for height in sorted(asked):
        if height not in shown:
            raise Unproved(f"the header at height {height} is missing; the newest {recent} must be there")
    if tip.height > recent:
        drawn_work = draws(
            tip.hash, total=shown[tip.height].before, below=shown[tip.height - recent + 1].before, samples=samples
        )
        asked |= _heights_drawn(drawn_work, list(shown.values()))
    if (more := len(shown) - len(asked)) > MAX_MORE:
        raise Unproved(f"{more} headers of the proof are ones that nothing asks for; at most {MAX_MORE} may be")
    if tip.work < minimum_work:
        raise Unproved(f"the chain has the work of {tip.work:,} hashes, less than the required {minimum_work:,}")
    return ProvenChain(tip, {height: shown[height].header for height in reversed(shown)})


@frozen
class _Shown:
    """A header of the proof, complete with the values that follow from the chain before it."""

    header: Header
    before: int
    """The cumulative work of the chain before the block."""
    after: int
    """The same with the block."""


class _ProofReader:
    """The chain as far as it has been read, from left to right."""

    def __init__(self, params: NetworkParams, nodes: Sequence[Node]) -> None:
        self._params = params
        self._nodes = iter(nodes)
        self.nodes_left = len(nodes)
        self.at = genesis_head(params)
        """The last block; its hash is b"" if the proof does not show it."""
        self.shown: dict[int, _Shown] = {}
        """By height, ascending."""

    def skip_to(self, height: int) -> None:
        """Read the nodes over the blocks before ``height``; raises Unproved."""
        if height <= self.at.point.height:
            raise Unproved("the heights of the headers must ascend from 1")
        while (first := self.at.point.height + 1) < height:
            _, level = next(subtrees_between(first, height))
            node = next(self._nodes, None)
            if node is None:
                raise Unproved(f"the nodes over the blocks from height {first} on are missing")
            self.nodes_left -= 1
            self._skip(first, level, node)

    def _skip(self, first: int, level: int, node: Node) -> None:
        before, blocks = self.at.point, 1 << level
        if not _is_possible(self._params, before, node, first=first, blocks=blocks):
            raise Unproved(f"{blocks} blocks from height {first} on cannot have slot, clock and work of their node")
        point = ChainPoint(
            # The digest of a leaf is the hash of its block.
            hash=b"" if level else digest_of(node),
            height=before.height + blocks,
            slot=slot_of(node),
            difficulty_clock=clock_of(node),
            work=_checked_sum(before.work, work_of(node)),
            issued=self._params.issued_after(before.height + blocks),
        )
        self.at = ChainHead(point=point, history=self.at.history.append(node, level))

    def header(self, header: Header) -> None:
        """Read the next header; raises RuleViolation or Unproved."""
        params, before, history = self._params, self.at.point, self.at.history
        if header.slot <= before.slot:
            raise Unproved(f"the slot at height {header.height} must be greater than {before.slot}, not {header.slot}")
        if before.hash and header.parent_hash != before.hash:
            raise Unproved(f"the header at height {header.height} does not build on the block before it")
        check_producer(params, header, self._producers_shown_before(header.height))
        check_multiplier(params, header)
        check_transaction_count(params, header)
        target = next_target(params, height=header.height, clock=before.difficulty_clock)
        _checked_sum(before.work, block_work(target))
        draft = evolve(header, base_target=target)
        root = consensus_root(params, point_after(params, before, draft), history.root)
        header = evolve(draft, consensus_root=root)
        point = point_after(params, before, header)
        self.shown[header.height] = _Shown(header, before.work, point.work)
        leaf = history_leaf(point, work=block_work(target))
        self.at = ChainHead(point=point, history=history.append(leaf))

    def _producers_shown_before(self, height: int) -> set[bytes]:
        """Of the last producers that another one must follow at ``height``, those that the proof shows."""
        heights = range(height - self._params.blocks_between_at(height), height)
        return {key_hash(self.shown[each].header.producer_key) for each in heights if each in self.shown}


def _checked_sum(work: int, more: int) -> int:
    if work + more >= _WORK_LIMIT:
        raise Unproved("the work of all blocks together must be below 2^256")
    return work + more


def _is_possible(params: NetworkParams, before: ChainPoint, node: Node, *, first: int, blocks: int) -> bool:
    """Whether so many blocks from height ``first`` on can have slot, clock and work of ``node`` after ``before``.

    Otherwise thousands of easy blocks that were never made could raise the difficulty until one lucky block outweighs
    the real chain.
    """
    slot, clock, work = slot_of(node), clock_of(node), work_of(node)
    if first == 1:
        return clock == 0 and slot > 0 and work == block_work(params.initial_target)
    passed = clock - before.difficulty_clock
    if not blocks <= passed <= min(slot - before.slot, params.gap_cap_slots * blocks):
        return False
    step = max(1, params.slots_per_block - 1)
    counted = min(blocks, max(1, params.half_life_slots // step))
    lag = clock - params.slots_per_block * (first + blocks - 2) + step * counted
    return work >= counted * block_work(target_at(params, lag))


def draws(tip: bytes, *, total: int, below: int, samples: int) -> list[int]:
    """The amounts of cumulative work whose blocks a proof of the chain with this ``tip`` must show.

    ``total`` is the cumulative work of the tip's parent, ``below`` that of the last block before the recent ones.
    """
    drawn_work = []
    halving = 0
    while total >> halving > total - below:
        low, high = total - (total >> halving), total - (total >> halving + 1)
        for number in range(samples):
            drawn = tagged_hash("svc/sample/v1", tip + halving.to_bytes(8, "big") + number.to_bytes(8, "big"))
            drawn_work.append(low + int.from_bytes(drawn, "big") % (high - low))
        halving += 1
    return drawn_work


def _heights_drawn(drawn_work: Sequence[int], shown: Sequence[_Shown]) -> set[int]:
    """The heights of the headers on which the draws fall; raises Unproved if one is missing."""
    heights = set()
    for work in drawn_work:
        at = bisect_right(shown, work, key=lambda each: each.before) - 1
        if at < 0 or work >= shown[at].after:
            raise Unproved(f"the header on which the draw at the work {work:x} falls is missing")
        heights.add(shown[at].header.height)
    return heights
