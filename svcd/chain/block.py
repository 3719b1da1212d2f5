"""Header and block v4, and the checks that need neither the chain nor the state (docs/protocol.md 5)."""

from functools import cached_property
from hashlib import sha256
from typing import Final

from attrs import evolve, field, frozen

from .encoding import (
    decimal_u53,
    exact_fields,
    hex_bytes,
    integer,
    parse_json,
    parse_wire_object,
    tagged_hash,
)
from .errors import Refusal, RuleViolation
from .merkle import merkle_root
from .params import BASIS_POINTS, NetworkParams
from .signature import is_valid
from .transaction import Known, Transfer, block_entry, parse_canonical_transfers, parse_transfer

VERSION: Final = 4
HEADER_ROOM: Final = 1_280
"""More bytes than any block has without its transactions."""
_HEADER_FIELDS: Final = frozenset(
    "version networkId height slot parentHash producerPublicKey multiplier baseTarget transactionsRoot "
    "transactionCount stateRoot consensusRoot workNonce signature".split()
)
_BLOCK_FIELDS: Final = _HEADER_FIELDS | {"transactions"}
_POSTED_FIELDS: Final = frozenset({"block"})
_BEFORE: Final = b'{"block":'
_AFTER: Final = b"}"
_OPENING: Final = b',"transactions":['
_CLOSING: Final = b"]"
_SIGNATURE: Final = b',"signature":"'
_SIGNATURE_REST: Final = 128 + len(b'"')
_ROOT: Final = b',"transactionsRoot":'
_WORK_NONCE: Final = b',"workNonce":"'
EMPTY_ROOT: Final = sha256(b"").digest()


def block_id(core_hash: bytes, work_nonce: bytes) -> bytes:
    """The 32-byte id of the block with this core and this work nonce."""
    return tagged_hash("svc/block-id/v4", core_hash + work_nonce)


@frozen(eq=False, kw_only=True)
class Header:
    """A block without its transactions; its fields are well formed, and nothing else has been checked."""

    network_id: int
    height: int
    slot: int
    parent_hash: bytes
    producer_key: bytes
    """The producer's 32-byte Ed25519 public key."""
    multiplier: int
    """Basis points."""
    base_target: int
    transactions_root: bytes
    transaction_count: int
    state_root: bytes
    consensus_root: bytes
    work_nonce: bytes = bytes(8)
    signature: bytes = field(default=bytes(64), repr=False)

    @cached_property
    def _parts(self) -> tuple[str, str, str]:
        """The canonical text without signature and transactions, cut where they are; it ends before the work nonce."""
        return (
            f'{{"baseTarget":"{self.base_target:064x}","consensusRoot":"{self.consensus_root.hex()}",'
            f'"height":"{self.height}","multiplier":{self.multiplier},"networkId":{self.network_id},'
            f'"parentHash":"{self.parent_hash.hex()}","producerPublicKey":"{self.producer_key.hex()}"',
            f',"slot":"{self.slot}","stateRoot":"{self.state_root.hex()}","transactionCount":{self.transaction_count}',
            f',"transactionsRoot":"{self.transactions_root.hex()}","version":{VERSION}',
        )

    @cached_property
    def core_hash(self) -> bytes:
        """32 bytes over everything but the work nonce and the signature: the input of the participation work."""
        return tagged_hash("svc/block/v4", ("".join(self._parts) + "}").encode())

    @cached_property
    def hash(self) -> bytes:
        """The block's 32-byte id, which the producer signs; the signature is no part of it."""
        return block_id(self.core_hash, self.work_nonce)

    def _halves(self) -> tuple[bytes, bytes]:
        """The canonical JSON of the header, cut where the transactions of the block are."""
        before, middle, after = self._parts
        first = f'{before},"signature":"{self.signature.hex()}"{middle}'
        return first.encode(), f'{after},"workNonce":"{self.work_nonce.hex()}"}}'.encode()

    def wire(self, transactions: bytes | None = None) -> bytes:
        """The canonical JSON of the header or, with the inside of the ``transactions`` array, of the whole block."""
        first, last = self._halves()
        # In one step: each copy of a full block costs half a millisecond.
        return b"".join([first, last] if transactions is None else [first, _OPENING, transactions, _CLOSING, last])

    def read_transfers(
        self, data: bytes, at: int, params: NetworkParams, known: Known | None = None
    ) -> tuple[tuple[Transfer, ...], int] | None:
        """The transfers of the block with this header, if its canonical JSON begins at ``at`` in ``data``, and its end.

        None for anything else: :func:`parse_block` says what is wrong.
        """
        first, last = self._halves()
        if not data.startswith(first + _OPENING, at):
            return None
        begin = at + len(first) + len(_OPENING)
        end = data.find(_CLOSING + last, begin, at + params.max_block_bytes)
        if end < 0:
            return None
        try:
            transfers = parse_canonical_transfers(data[begin:end], params, known) if end > begin else ()
            _check_count(len(transfers), params)
        except RuleViolation:
            return None
        return transfers, end + len(_CLOSING) + len(last)

    def check_signature(self) -> None:
        """Raise RuleViolation(BLOCK_SIGNATURE) unless the producer's key signed the hash."""
        if not is_valid(self.producer_key, self.hash, self.signature):
            raise RuleViolation(Refusal.BLOCK_SIGNATURE, f"block {self.hash.hex()} is not signed by its producer's key")

    def sealed(self, *, work_nonce: bytes, signature: bytes) -> "Header":
        """The same header with its participation work and the producer's signature."""
        return evolve(self, work_nonce=work_nonce, signature=signature)


@frozen(eq=False)
class Block:
    """A header and the transfers that came with it."""

    header: Header
    transfers: tuple[Transfer, ...]

    def wire(self) -> bytes:
        """The canonical JSON of the block: what peers exchange."""
        return self.header.wire(b",".join([transfer.wire for transfer in self.transfers]))

    @property
    def size(self) -> int:
        """Bytes of its canonical JSON."""
        commas = max(len(self.transfers) - 1, 0)
        return len(self.header.wire(b"")) + sum([len(transfer.wire) for transfer in self.transfers]) + commas

    @cached_property
    def _transactions_root(self) -> bytes:
        return transactions_root(self.transfers)

    def check_body(self) -> None:
        """Raise RuleViolation unless count and root in the header are those of the transfers."""
        if self.header.transaction_count != len(self.transfers):
            raise RuleViolation(
                Refusal.TRANSACTION_COUNT,
                f"transactionCount is {self.header.transaction_count}, not {len(self.transfers)} as there are",
            )
        if self.header.transactions_root != self._transactions_root:
            raise RuleViolation(Refusal.TRANSACTIONS_ROOT, "transactionsRoot is not the root of these transactions")


def transactions_root(transfers: tuple[Transfer, ...]) -> bytes:
    """The 32-byte Merkle root over ``txid ‖ signature`` of each transfer, in block order."""
    return merkle_root([block_entry(transfer) for transfer in transfers])


def parse_header(value: object, params: NetworkParams) -> Header:
    """The header in a JSON object; raises RuleViolation: FIELDS, FORMAT or CONSTANTS."""
    fields = exact_fields(value, _HEADER_FIELDS, "header")
    if integer(fields["version"], "version") != VERSION:
        raise RuleViolation(Refusal.CONSTANTS, f"version must be {VERSION}")
    if integer(fields["networkId"], "networkId") != params.network_id:
        raise RuleViolation(Refusal.CONSTANTS, f"networkId must be {params.network_id}, the id of {params.chain_id}")
    return Header(
        network_id=params.network_id,
        height=decimal_u53(fields["height"], "height"),
        slot=decimal_u53(fields["slot"], "slot"),
        parent_hash=hex_bytes(fields["parentHash"], 32, "parentHash"),
        producer_key=hex_bytes(fields["producerPublicKey"], 32, "producerPublicKey"),
        multiplier=integer(fields["multiplier"], "multiplier"),
        base_target=int.from_bytes(hex_bytes(fields["baseTarget"], 32, "baseTarget"), "big"),
        transactions_root=hex_bytes(fields["transactionsRoot"], 32, "transactionsRoot"),
        transaction_count=integer(fields["transactionCount"], "transactionCount"),
        state_root=hex_bytes(fields["stateRoot"], 32, "stateRoot"),
        consensus_root=hex_bytes(fields["consensusRoot"], 32, "consensusRoot"),
        work_nonce=hex_bytes(fields["workNonce"], 8, "workNonce"),
        signature=hex_bytes(fields["signature"], 64, "signature"),
    )


def header_hash(header: bytes) -> bytes:
    """The hash of a header from its canonical JSON, in a fifth of the time of parsing.

    Other bytes give a meaningless hash, or raise ValueError.
    """
    core, _, nonce = header.partition(_WORK_NONCE)
    before, _, rest = core.partition(_SIGNATURE)
    after = rest[_SIGNATURE_REST:]
    return block_id(tagged_hash("svc/block/v4", before + after + b"}"), bytes.fromhex(nonce[:16].decode("ascii")))


def block_wire(header: bytes, transactions: bytes) -> bytes:
    """The canonical JSON of a block, from that of its header and the inside of its ``transactions`` array."""
    before, mark, after = header.partition(_ROOT)
    return b"".join([before, _OPENING, transactions, _CLOSING, mark, after])


def parse_block(data: bytes, params: NetworkParams, known: Known | None = None) -> Block:
    """The block whose canonical JSON is exactly ``data``; ``known`` transfers are not parsed again.

    Raises RuleViolation: SIZE, ENCODING, or what parse_header and parse_transfer raise.
    """
    _check_size(len(data), params)
    if block := _canonical_block(data, params, known):
        return block
    # For its refusal alone: values that break no rule were not written in the one accepted form.
    _block_of(parse_wire_object(data), params)
    raise RuleViolation(Refusal.ENCODING, "the block is not canonical JSON: sorted keys, no blanks, no key twice")


def parse_posted_block(body: bytes, params: NetworkParams, known: Known | None = None) -> Block:
    """The block in the body ``{"block":{…}}`` of a post, in any encoding as strict JSON with the same values.

    Size limit and field formats apply to the canonical form of the values, not to the posted text. Raises
    RuleViolation: what parse_json and parse_block raise.
    """
    if body.startswith(_BEFORE) and body.endswith(_AFTER):
        try:
            return parse_block(body[len(_BEFORE) : -len(_AFTER)], params, known)
        except RuleViolation as violation:
            # ENCODING and SIZE may be due to the encoding alone: try the lenient parser.
            if violation.code not in (Refusal.ENCODING, Refusal.SIZE):
                raise
    posted = exact_fields(parse_json(body), _POSTED_FIELDS, "the body")
    block = _block_of(posted["block"], params)
    _check_size(len(block.wire()), params)
    return block


def _check_size(size: int, params: NetworkParams) -> None:
    if size > params.max_block_bytes:
        raise RuleViolation(Refusal.SIZE, f"a block has at most {params.max_block_bytes} bytes, not {size}")


def _check_count(number: int, params: NetworkParams) -> None:
    if number > params.max_block_transactions:
        raise RuleViolation(
            Refusal.SIZE, f"a block has at most {params.max_block_transactions} transactions, not {number}"
        )


def _canonical_block(data: bytes, params: NetworkParams, known: Known | None) -> Block | None:
    """The block whose canonical JSON is ``data``, or None if anything is wrong with it."""
    before, _, rest = data.partition(_OPENING)
    after = rest.rpartition(_CLOSING)[2]
    try:
        header = parse_header(parse_wire_object(before + after), params)
    except RuleViolation:
        return None
    transfers, end = header.read_transfers(data, 0, params, known) or ((), None)
    return Block(header, transfers) if end == len(data) else None


def _block_of(value: object, params: NetworkParams) -> Block:
    """The block in a JSON object, whatever its text was."""
    fields = dict(exact_fields(value, _BLOCK_FIELDS, "block"))
    values = fields.pop("transactions")
    if type(values) is not list:
        raise RuleViolation(Refusal.FORMAT, "transactions must be an array")
    _check_count(len(values), params)
    header = parse_header(fields, params)
    return Block(header, tuple([parse_transfer(value, params) for value in values]))


def genesis_header(params: NetworkParams, *, state_root: bytes, consensus_root: bytes) -> Header:
    """The block at height 0 for display; its hash is ``params.genesis_hash``, not that of the header."""
    return Header(
        network_id=params.network_id,
        height=0,
        slot=0,
        parent_hash=bytes(32),
        producer_key=bytes(32),
        multiplier=BASIS_POINTS,
        base_target=params.initial_target,
        transactions_root=EMPTY_ROOT,
        transaction_count=0,
        state_root=state_root,
        consensus_root=consensus_root,
    )
