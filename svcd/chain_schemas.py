"""JSON schemas of the chain's values and objects, which the routes of several packages have in common."""

from typing import Final

from svcd.chain.address import NODE_ID_PATTERN, encode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.params import MAINNET, NetworkParams
from svcd.web.field_types import (
    Hex,
    Schema,
    Text,
    all_described,
    component,
    constant,
    described,
    digits_up_to,
    with_example,
)
from svcd.web.routes import named_object

_SOME_KEY: Final = bytes.fromhex("00dbd7c45c0ea5ac5bd5d8e7a7815d1c4f4bf0f8")
SOME_ADDRESS: Final = encode_address(_SOME_KEY, MAINNET.address_prefix)
"""The address in examples, on mainnet."""


def _address(prefix: str, size: int, least: int) -> Schema:
    pattern = f"^{prefix}1q[02-9ac-hj-np-z]{{38}}$"
    return {"type": "string", "pattern": pattern, "minLength": least, "maxLength": size}


def of_network(params: NetworkParams) -> dict[str, Schema]:
    """The components that are narrower on one network than in general, by name."""
    example = encode_address(_SOME_KEY, params.address_prefix)
    address = _address(params.address_prefix, len(example), len(example))
    return {
        "NetworkId": constant(params.network_id),
        "ChainId": constant(params.chain_id),
        "GenesisHash": constant(params.genesis_hash.hex()),
        "Address": {**address, "description": "A bech32m address of the network.", "examples": [example]},
    }


WHOLE_NUMBER: Final = component(
    "WholeNumber",
    {
        "type": "string",
        "pattern": f"^{digits_up_to(MAX_INTEGER)}$",
        "description": f"A whole number from 0 to {MAX_INTEGER}, as a string.",
        "examples": ["3"],
    },
)
BASE_UNITS: Final = with_example(WHOLE_NUMBER, "2500000000")
TIME: Final = with_example(WHOLE_NUMBER, "1795170611703")
"""Unix milliseconds."""
PRUNE_HEIGHT: Final = described(
    with_example(WHOLE_NUMBER, "0"),
    "The height from which on the node has whole blocks and not just their headers; 0 if it has all.",
)
PRUNED: Final = {410: {"pruneHeight": PRUNE_HEIGHT}}
"""The members of an error about blocks that the node does not have any more, or never had."""
SINCE_HEIGHT: Final = with_example(WHOLE_NUMBER, "0")
FEE: Final = with_example(WHOLE_NUMBER, "10000")
SLOT: Final = with_example(WHOLE_NUMBER, "6")
HASH: Final = component("Hash", Hex(32).schema)
PUBLIC_KEY: Final = component("PublicKey", Hex(32).schema)
SIGNATURE: Final = component("Signature", Hex(64).schema)
NODE_ID: Final = Text(NODE_ID_PATTERN, more={"examples": ["svcnode_773b63a2de4a437c36d424150c560f07"]}, name="NodeId")
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
CONFIRMATIONS: Final = with_example(COUNT, 12)
"""In the examples block 3 contains a transfer as its only one, and the newest block is 14."""
TIP_HEIGHT: Final = with_example(WHOLE_NUMBER, "14")
TIP_HASH: Final = with_example(HASH, 4 * "fedcba9876543210")
INDEX: Final = with_example(COUNT, 0)
NETWORK_ID: Final = component("NetworkId", {"type": "integer"})
CHAIN_ID: Final = component("ChainId", {"type": "string"})
GENESIS_HASH: Final = component("GenesisHash", Hex(32).schema)
ADDRESS: Final = component("Address", _address("[a-z]{2,8}", 48, 42))
REFERENCE: Final = component(
    "Reference",
    {
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "pattern": "^[A-Za-z0-9._:-]+$",
        "description": "The payment reference that a sender signs into a transfer.",
        "examples": ["order-1001"],
    },
)
_PAYLOAD: Final = named_object(
    "TransferPayload",
    {"recipient": ADDRESS, "amount": BASE_UNITS, "paymentReference": REFERENCE},
    optional=["paymentReference"],
)
TRANSFER_FIELDS: Final[dict[str, Schema]] = all_described(
    {
        "version": constant(2),
        "networkId": NETWORK_ID,
        "type": constant(1),
        "senderPublicKey": PUBLIC_KEY,
        "senderAddress": ADDRESS,
        "nonce": WHOLE_NUMBER,
        "fee": FEE,
        "timestamp": TIME,
        "payload": _PAYLOAD,
        "signature": SIGNATURE,
    },
    {
        "networkId": "That of the network.",
        "senderPublicKey": "The key that signs.",
        "senderAddress": "The address of that key.",
        "nonce": "How many transfers the sender has sent before.",
        "fee": "In base units, at least the minimum fee.",
        "timestamp": "When it was made.",
        "signature": "By the key of the sender, over the transaction id.",
    },
)
TRANSFER: Final = named_object("Transfer", TRANSFER_FIELDS, about="A signed transfer in canonical form.")
SIGNED_TRANSACTION: Final = named_object(
    "SignedTransaction",
    {
        **TRANSFER_FIELDS,
        "senderPublicKey": Hex(32, any_case=True).schema,
        "signature": Hex(64, any_case=True).schema,
    },
    about="A signed transfer as wallets may send it, with hex in either case.",
)
HEADER_FIELDS: Final[dict[str, Schema]] = all_described(
    {
        "version": constant(4),
        "networkId": NETWORK_ID,
        "height": WHOLE_NUMBER,
        "slot": SLOT,
        "parentHash": with_example(HASH, 4 * "89abcdef01234567"),
        "producerPublicKey": PUBLIC_KEY,
        "multiplier": described(
            with_example(COUNT, 10_000), "Of the target for the producer's holding, in basis points."
        ),
        "baseTarget": HASH,
        "transactionsRoot": HASH,
        "transactionCount": with_example(COUNT, 1),
        "stateRoot": HASH,
        "consensusRoot": HASH,
        "workNonce": Hex(8).schema,
        "signature": SIGNATURE,
    },
    {
        "networkId": "That of the network.",
        "height": "The parent's + 1.",
        "slot": "Greater than the parent's.",
        "parentHash": "The hash of the parent.",
        "producerPublicKey": "The key that signs the block and receives the reward.",
        "baseTarget": "The target before the multiplier.",
        "transactionsRoot": "Commits to the transfers.",
        "transactionCount": "How many transfers the block contains.",
        "stateRoot": "Commits to all accounts after the block.",
        "consensusRoot": "Commits to the chain variables after the block.",
        "workNonce": "Found by the producer's search.",
        "signature": "By the key of the producer, over the hash.",
    },
)
HEADER: Final = named_object("Header", HEADER_FIELDS)
_BLOCK: Final = {**HEADER_FIELDS, "transactions": {"type": "array", "items": TRANSFER}}
POSTED_BLOCK: Final = named_object("PostedBlock", _BLOCK, about="A block as nodes exchange it.")
BLOCK: Final = named_object(
    "Block",
    {**_BLOCK, "hash": HASH, "confirmations": described(CONFIRMATIONS, "1 for the newest block.")},
    about="A canonical block, as nodes exchange it, with its hash and its confirmations.",
)
HISTORY_NODE: Final = component(
    "HistoryNode",
    {
        "type": "array",
        "items": {"type": "string"},
        "minItems": 4,
        "maxItems": 4,
        "description": "A node of the history tree: digest, work in hex, slot and difficulty clock as decimal strings.",
        "examples": [[bytes(32).hex(), "4003", "6", "0"]],
    },
)
RECEIPT: Final = named_object(
    "Receipt",
    {
        "txid": HASH,
        "state": {
            "type": "string",
            "enum": ["accepted", "known"],
            "description": "`accepted`: the transfer waits for a block; `known`: it waited already, or is in a block.",
        },
    },
)
