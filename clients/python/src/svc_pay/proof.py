"""Checks payment proofs without a node, against one block hash that the merchant trusts (docs/payment-proof.md).

With a trusted tip the chain of hashes is the whole proof: every header commits to its parent, and the block of the
payment to the transfer with its signature. What only matters without one (difficulty, consensus roots, participation
work) is not checked here; `svc verify --proof` checks it too.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from svc_pay.chain import Network, address_of, canonical, tagged_hash, txid_of
from svc_pay.errors import InvalidAnswer, InvalidInput, InvalidProof
from svc_pay.members import Members
from svc_pay.model import Order

_MAX_PATH: Final = 64
_HEX: Final = re.compile("(?:[0-9a-f]{2})*")


@dataclass(frozen=True, slots=True)
class ProvenPayment:
    """The payment that a proof proves."""

    txid: str
    sender: str
    block_hash: str
    block_height: int
    confirmations: int
    """Blocks from the block of the transfer to the trusted tip, including both."""


def check_proof(answers: Iterable[bytes], order: Order, *, tip: str) -> ProvenPayment:
    """The payment of ``order`` that the answers of a node prove; raises InvalidProof.

    ``answers`` are the bytes of the first answer and its continuations. ``tip`` is the hash of the last block in the
    proof, from a node other than the one that made the proof. The order decides how many confirmations are enough.
    """
    given: object = answers
    if isinstance(given, bytes | str):
        raise InvalidInput("give the answers of the node as a list, even a single one")
    try:
        return _check([Members.of(answer, "the answer").object("proof") for answer in answers], order, tip)
    except (InvalidAnswer, UnicodeEncodeError) as error:
        raise InvalidProof(f"this is not a proof: {error}") from None


def _check(proofs: Sequence[Members], order: Order, tip: str) -> ProvenPayment:
    if not proofs:
        raise InvalidProof("there is no answer to check")
    proof, network = proofs[0], order.network
    if proof.text("chainId") != network.chain_id or proof.text("genesisHash") != network.genesis_hash:
        raise InvalidProof(f"the proof is not of {network.name}, to which the order's recipient belongs")
    if any(_without_headers(other) != _without_headers(proof) for other in proofs[1:]):
        raise InvalidProof("the answers belong to different proofs; the chain may have changed, so fetch them again")
    transaction, block = proof.object("transaction"), proof.object("header")
    headers = [block, *(header for each in proofs for header in each.objects("headers"))]
    check_terms(transaction, block.number("height"), len(headers), order)
    hashes = _check_headers(headers)
    if hashes[-1] != tip.lower():
        raise InvalidProof(f"the proof ends in block {hashes[-1]}, not in the trusted one")
    txid = check_transfer(proof, transaction, block, network)
    return ProvenPayment(txid.hex(), transaction.text("senderAddress"), hashes[0], block.number("height"), len(headers))


def _without_headers(proof: Members) -> dict[str, object]:
    return {name: value for name, value in proof.raw.items() if name != "headers"}


def check_terms(transaction: Members, height: int, confirmations: int, order: Order) -> None:
    """Raise InvalidProof unless a transfer pays ``order``, in a block that counts and deep enough."""
    payload = transaction.object("payload")
    asked = (order.reference, order.recipient, order.amount)
    paid = (payload.text_or_none("paymentReference"), payload.text("recipient"), payload.number("amount"))
    if paid != asked:
        raise InvalidProof(f"the transfer has reference, recipient and amount {paid}, the order {asked}")
    if order.since_height is not None and height < order.since_height:
        raise InvalidProof(f"the payment is in a block below {order.since_height}, where payments do not count")
    if confirmations < order.confirmations:
        raise InvalidProof(f"the proof shows {confirmations} confirmations, and the order requires more")


def _check_headers(headers: Sequence[Members]) -> list[str]:
    """The hashes of headers of which each is the parent of the next one."""
    hashes: list[str] = []
    for place, header in enumerate(headers):
        if place and header.text("parentHash") != hashes[-1]:
            raise InvalidProof(f"the header at height {header.number('height')} does not build on the one before it")
        if header.number("height") != headers[0].number("height") + place:
            raise InvalidProof("the heights of the headers do not follow each other")
        core = {name: value for name, value in header.raw.items() if name not in ("workNonce", "signature")}
        nonce = _bytes(header, "workNonce", 8)
        hashes.append(tagged_hash("svc/block-id/v4", tagged_hash("svc/block/v4", canonical(core)) + nonce).hex())
    return hashes


def check_transfer(proof: Members, transaction: Members, block: Members, network: Network) -> bytes:
    """The txid of the transfer, which its sender has signed and its block holds; raises InvalidProof.

    ``proof`` has index and path, and ``block`` transactionCount and transactionsRoot.
    """
    key, signature = _bytes(transaction, "senderPublicKey", 32), _bytes(transaction, "signature", 64)
    txid = txid_of(dict(transaction.raw), network)
    if transaction.text("senderAddress") != address_of(key, network):
        raise InvalidProof("senderAddress is not the address of senderPublicKey")
    try:
        VerifyKey(key).verify(txid, signature)
    except BadSignatureError:
        raise InvalidProof("the signature of the transfer is not its sender's") from None
    root = _root(txid + signature, proof.count("index"), block.count("transactionCount"), _path(proof))
    if root is None or root.hex() != block.text("transactionsRoot"):
        raise InvalidProof("the path does not lead from the transfer to the transactionsRoot of its block")
    return txid


def _path(proof: Members) -> list[bytes]:
    steps = proof.texts("path")
    if len(steps) > _MAX_PATH or any(len(step) != 64 for step in steps):
        raise InvalidProof(f"path must be an array of at most {_MAX_PATH} hashes")
    return [_hex(step, "path") for step in steps]


def _root(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root to which an audit path leads (RFC 6962 section 2.1.1); None if its length is wrong."""
    if index >= size:
        return None
    node, last, steps = sha256(b"\0" + leaf).digest(), size - 1, iter(path)
    while last:
        if index % 2 or index < last:
            sibling = next(steps, None)
            if sibling is None:
                return None
            node = sha256(b"\1" + (sibling + node if index % 2 else node + sibling)).digest()
        index, last = index // 2, last // 2
    return node if next(steps, None) is None else None


def _bytes(members: Members, name: str, size: int) -> bytes:
    value = _hex(members.text(name), name)
    if len(value) != size:
        raise InvalidProof(f"{name} must be {size} bytes in hex")
    return value


def _hex(text: str, name: str) -> bytes:
    if not _HEX.fullmatch(text):
        raise InvalidProof(f"{name} must be lower-case hex")
    return bytes.fromhex(text)
