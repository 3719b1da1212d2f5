"""Makes the proofs that a light client checks: of a chain by some hundred headers, of an account, of a payment.

The chain is read from one commit; a chain of half a million blocks takes part of a second (docs/protocol.md 13).
"""

import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ..chain.accounts import Account
from ..chain.address import encode_address
from ..chain.encoding import canonical
from ..chain.history import Node, node_json, subtrees_between
from ..chain.merkle import inclusion_path
from ..chain.params import NetworkParams
from ..chain.transaction import block_entry_of
from ..chain.transition import ChainPoint
from .chain_proof import HEADER_FIELDS, RECENT, SAMPLES, draws, network_fields


class ProvableChain(Protocol):
    """The canonical chain at one commit."""

    def cumulative_work(self, height: int) -> int:
        """The work of the chain up to the block at ``height``."""

    def headers(self, first: int, *, limit: int) -> list[bytes]:
        """The canonical JSON of at most ``limit`` headers from height ``first`` on."""

    def history_node(self, first: int, level: int) -> Node:
        """The node of the history tree over the 2^``level`` blocks from height ``first`` on."""


def render_chain_proof(chain: ProvableChain, params: NetworkParams, tip: ChainPoint) -> dict[str, object]:
    """The chain proof with this canonical ``tip``, as the JSON object ``proof`` of a node's answer."""
    return {**network_fields(params), **render_chain_section(chain, tip)}


def render_chain_section(
    chain: ProvableChain,
    tip: ChainPoint,
    *,
    including: Sequence[int] = (),
    recent: int = RECENT,
    samples: int = SAMPLES,
) -> dict[str, object]:
    """The chain proof as the member ``chain`` of a payment proof; it shows the blocks at heights ``including`` too.

    ``recent`` and ``samples`` differ from the constants only for test vectors with short chains.
    """
    heights = sorted({*including, *_heights_to_show(chain, tip, recent=recent, samples=samples)})
    nodes, begin = [], 1
    for height in heights:
        nodes += [node_json(chain.history_node(first, level)) for first, level in subtrees_between(begin, height)]
        begin = height + 1
    return {"tip": tip.hash.hex(), "headers": [*_headers(chain, heights)], "nodes": nodes}


def _heights_to_show(chain: ProvableChain, tip: ChainPoint, *, recent: int, samples: int) -> set[int]:
    heights = set(range(max(1, tip.height - recent + 1), tip.height + 1))
    if tip.height > recent:
        total, below = chain.cumulative_work(tip.height - 1), chain.cumulative_work(tip.height - recent)
        # Half a million blocks are halved twenty times for each draw, by the same heights at first.
        work: dict[int, int] = {}

        def work_at(height: int) -> int:
            if height not in work:
                work[height] = chain.cumulative_work(height)
            return work[height]

        # A draw falls on the first block with which the chain has more work than was drawn.
        blocks = range(tip.height)
        heights |= {
            bisect_right(blocks, drawn, key=work_at)
            for drawn in draws(tip.hash, total=total, below=below, samples=samples)
        }
    return heights


def _headers(chain: ProvableChain, heights: Sequence[int]) -> Iterator[dict[str, object]]:
    at = 0
    while at < len(heights):
        run = 1
        while at + run < len(heights) and heights[at + run] == heights[at] + run:
            run += 1
        for header in chain.headers(heights[at], limit=run):
            fields = json.loads(header)
            yield {name: fields[name] for name in HEADER_FIELDS}
        at += run


def render_account_proof(
    params: NetworkParams,
    address: str,
    *,
    tip: ChainPoint,
    leaf: tuple[bytes, Account] | None,
    siblings: Sequence[bytes],
) -> dict[str, object]:
    """The proof of the account of ``address``, or that there is none, as the JSON object ``proof`` of a node's answer.

    ``leaf`` is the only account below the end of the path, by its 20-byte key hash. ``siblings`` are the 32-byte hashes
    beside the path from the deepest up to the state root of ``tip``.
    """
    shown = None
    if leaf is not None:
        key, account = leaf
        shown = {
            "address": encode_address(key, params.address_prefix),
            "balance": str(account.balance),
            "nonce": str(account.nonce),
            "heldSince": None if account.held_since is None else str(account.held_since),
        }
    return {
        **network_fields(params),
        "height": str(tip.height),
        "hash": tip.hash.hex(),
        "address": address,
        "leaf": shown,
        "path": [step.hex() for step in siblings],
    }


def render_payment_proof(
    params: NetworkParams,
    *,
    body: bytes,
    position: int,
    bodies: Sequence[bytes],
    height: int,
    chain: Mapping[str, object],
) -> bytes:
    """The whole answer with the proof of a payment; hashing a full block takes tens of milliseconds.

    ``body`` is the canonical JSON of the transfer, at ``position`` among the ``bodies`` of its block at ``height``, and
    ``chain`` a chain section that shows this block (:func:`render_chain_section`).
    """
    entries = [block_entry_of(each, params) for each in bodies]
    proof: dict[str, object] = {
        **network_fields(params),
        "transaction": json.loads(body),
        "index": position,
        "path": [step.hex() for step in inclusion_path(entries, position)],
        "height": str(height),
        "chain": chain,
    }
    return canonical({"ok": True, "proof": proof, "next": None})
