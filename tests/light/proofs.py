"""Proofs for tests: of a chain in the language of `tests.chains`, and what a forger makes of them."""

import json
from collections.abc import Sequence
from typing import Any

from attrs import evolve

from svcd.chain.block import Block, Header
from svcd.chain.signature import sign
from svcd.chain.transition import ChainHead, consensus_root, head_after, point_after
from svcd.chain.work import effective_target, work_value
from svcd.light.payment_proof import Proof, proof_in
from svcd.light.prover import render_chain_section, render_payment_proof
from tests.chains import TEST_PARAMS, ChainBuilder, key_of
from tests.light.built_chain import BuiltChain

PAID = """
genesis: b[1..6]
b2 pays 7 from alice to bob for order-7
b3 pays 1 from alice to carol
b3 pays 2 from alice to bob for order-0
b3 pays 5000 from carol to bob for order-1
b3 pays 3 from bob to carol
b3 pays 4 from bob to carol
"""
"""Block 3 holds the payment of order-1 as the third of its five transfers; it has four confirmations."""
PLACE = 2


def rendered(chain: ChainBuilder, blocks: Sequence[Block], height: int, position: int) -> bytes:
    """The answer of a node whose chain is ``blocks`` with the proof of a transfer."""
    section = render_chain_section(BuiltChain(chain, blocks), chain.point_after(blocks[-1]), including=[height])
    bodies = [transfer.wire for transfer in blocks[height - 1].transfers]
    return render_payment_proof(
        chain.params, body=bodies[position], position=position, bodies=bodies, height=height, chain=section
    )


def answer_of(text: str = PAID, height: int = 3, position: int = PLACE) -> dict[str, Any]:
    """The answer with the proof of one transfer of the chain in ``text``, as an object to be changed."""
    chain = ChainBuilder()
    answer: dict[str, Any] = json.loads(rendered(chain, list(chain.chain(text).values()), height, position))
    return answer


def parsed(answer: dict[str, Any]) -> Proof:
    """The proof in an answer."""
    return proof_in(json.dumps(answer).encode(), [TEST_PARAMS])


def sealed(header: Header, signer: str = "p") -> Header:
    """``header`` with work and signature that are good."""
    target = effective_target(header.base_target, header.multiplier)
    nonce = next(
        nonce
        for nonce in (number.to_bytes(8, "big") for number in range(1 << 16))
        if work_value(header.core_hash, nonce, TEST_PARAMS.memory_kib) < target
    )
    unsigned = header.sealed(work_nonce=nonce, signature=bytes(64))
    return unsigned.sealed(work_nonce=nonce, signature=sign(key_of(signer).seed, unsigned.hash))


def rebuilt(parent: ChainHead, headers: Sequence[Header], **changes: object) -> list[Header]:
    """The headers with ``changes`` in the first one, worked and linked anew: what a forger with hashing power makes."""
    made: list[Header] = []
    head = parent
    for number, header in enumerate(headers):
        changed = evolve(header, parent_hash=head.point.hash, producer_key=key_of("p").public, multiplier=10_000)
        if number == 0:
            changed = evolve(changed, **changes)  # type: ignore[arg-type]
        root = consensus_root(TEST_PARAMS, point_after(TEST_PARAMS, head.point, changed), head.history.root)
        made.append(sealed(evolve(changed, consensus_root=root)))
        head = head_after(TEST_PARAMS, head, made[-1])
    return made
