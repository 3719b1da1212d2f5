"""JSON schemas of the requests and responses of the chain routes, for the OpenAPI document.

A new field of a response must be added to its schema here, to the method of the route that returns it, and to
docs/http.md; the tests compare every response with its schema.
"""

from typing import Final

from svcd.chain.address import NODE_ID_PATTERN
from svcd.chain.encoding import MAX_INTEGER
from svcd.web.field_types import Hex, Schema, Text
from svcd.web.routes import object_schema

DECIMAL: Final[Schema] = {
    "type": "string",
    "pattern": "^(0|[1-9][0-9]{0,15})$",
    "description": f"A whole number from 0 to {MAX_INTEGER}.",
}
DECIMAL_OR_NULL: Final[Schema] = {"anyOf": [DECIMAL, {"type": "null"}]}
COINS: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]*)(\\.[0-9]{0,7}[1-9])?$"}
HASH: Final = Hex(32).schema
SIGNATURE: Final = Hex(64).schema
NODE_ID: Final = Text(NODE_ID_PATTERN).schema
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
ADDRESS: Final[Schema] = {"type": "string", "pattern": "^svcd?1q[02-9ac-hj-np-z]{38}$"}
REFERENCE: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 64, "pattern": "^[A-Za-z0-9._:-]+$"}
ORDER_REFERENCE: Final[Schema] = {**REFERENCE, "not": {"enum": [".", ".."]}}


def _constant(value: object) -> Schema:
    return {"const": value}


PAYLOAD: Final = object_schema(
    {"recipient": ADDRESS, "amount": DECIMAL, "paymentReference": REFERENCE}, optional=["paymentReference"]
)
_TRANSFER: Final[dict[str, Schema]] = {
    "version": _constant(2),
    "networkId": {"type": "integer"},
    "type": _constant(1),
    "senderPublicKey": HASH,
    "senderAddress": ADDRESS,
    "nonce": DECIMAL,
    "fee": DECIMAL,
    "timestamp": DECIMAL,
    "payload": PAYLOAD,
    "signature": SIGNATURE,
}
TRANSFER: Final = object_schema(_TRANSFER)
SIGNED_TRANSACTION: Final = object_schema(
    {
        **_TRANSFER,
        "senderPublicKey": Hex(32, any_case=True).schema,
        "signature": Hex(64, any_case=True).schema,
    }
)
_READABLE: Final[dict[str, Schema]] = {"txid": HASH, "amountSvc": COINS, "feeSvc": COINS}
RECORD: Final = object_schema(
    {
        **_TRANSFER,
        **_READABLE,
        "blockHash": HASH,
        "blockHeight": DECIMAL,
        "index": COUNT,
        "slot": DECIMAL,
        "blockTime": DECIMAL,
        "confirmations": COUNT,
    }
)
_HEADER: Final[dict[str, Schema]] = {
    "version": _constant(4),
    "networkId": {"type": "integer"},
    "height": DECIMAL,
    "slot": DECIMAL,
    "parentHash": HASH,
    "producerPublicKey": HASH,
    "multiplier": COUNT,
    "baseTarget": HASH,
    "transactionsRoot": HASH,
    "transactionCount": COUNT,
    "stateRoot": HASH,
    "consensusRoot": HASH,
    "workNonce": Hex(8).schema,
    "signature": SIGNATURE,
}
HEADER: Final = object_schema(_HEADER)
BLOCK: Final = object_schema(
    {**_HEADER, "transactions": {"type": "array", "items": TRANSFER}, "hash": HASH, "confirmations": COUNT}
)
STATUS: Final = object_schema(
    {
        "softwareVersion": _constant("0.0.1"),
        "protocolVersion": _constant("1.0"),
        "networkId": {"type": "integer"},
        "chainId": {"type": "string"},
        "genesisHash": HASH,
        "height": DECIMAL,
        "slot": DECIMAL,
        "hash": HASH,
        "stateRoot": HASH,
        "consensusRoot": HASH,
        "nodeId": NODE_ID,
        "endpoint": {"type": "string"},
        "knownPeerCount": COUNT,
        "bestKnownPeerHeight": DECIMAL,
        "syncLagBlocks": DECIMAL,
        "syncState": {"enum": ["synced", "catching-up"]},
        "time": DECIMAL,
    },
    optional=["endpoint", "stateRoot", "consensusRoot", "knownPeerCount", "bestKnownPeerHeight", "syncLagBlocks"],
)
CONSENSUS: Final = object_schema(
    {
        "networkId": {"type": "integer"},
        "chainId": {"type": "string"},
        "genesisHash": HASH,
        "genesisTime": DECIMAL,
        "slotSeconds": COUNT,
        "currentSlot": DECIMAL,
        "targetSlotsPerBlock": COUNT,
        "nextHeight": DECIMAL,
        "nextTarget": HASH,
        "nextBlockReward": DECIMAL,
        "rewardSchedule": object_schema({"initialReward": DECIMAL, "halvingBlocks": COUNT, "supplyLimit": DECIMAL}),
        "participationWork": object_schema(
            {
                "algorithm": _constant("argon2id"),
                "version": _constant(19),
                "memoryKiB": COUNT,
                "timeCost": COUNT,
                "parallelism": COUNT,
                "hashLength": COUNT,
            }
        ),
        "holdingMultiplier": object_schema(
            {
                "minimumBalance": DECIMAL,
                "unit": _constant("basis points"),
                "schedule": {
                    "type": "array",
                    "items": object_schema({"heldSlots": COUNT, "multiplier": COUNT}),
                },
            }
        ),
        "minimumFee": DECIMAL,
        "maxBlockTransactions": COUNT,
        "maxBlockBytes": COUNT,
        "transactionPastSeconds": COUNT,
        "transactionFutureSeconds": COUNT,
    }
)
ACCOUNT: Final = object_schema(
    {
        "address": ADDRESS,
        "balance": DECIMAL,
        "balanceSvc": COINS,
        "nonce": DECIMAL,
        "pendingNonce": DECIMAL,
        "pendingBalance": DECIMAL,
        "heldSince": DECIMAL_OR_NULL,
    }
)
HISTORY: Final = object_schema(
    {
        "address": ADDRESS,
        "transactions": {"type": "array", "items": RECORD},
        "next": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }
)
WAITING: Final = object_schema(
    {
        "address": ADDRESS,
        "transactions": {"type": "array", "items": object_schema({**_TRANSFER, **_READABLE})},
        "next": DECIMAL_OR_NULL,
    }
)
FEES: Final = object_schema(
    {
        "minimumFee": DECIMAL,
        "suggestedFee": DECIMAL,
        "transferBytes": COUNT,
        "mempool": object_schema({"transactions": COUNT, "bytes": COUNT, "floor": DECIMAL_OR_NULL}),
        "recent": object_schema(
            {
                "blocks": COUNT,
                "transactions": COUNT,
                "lowest": DECIMAL_OR_NULL,
                "median": DECIMAL_OR_NULL,
                "highest": DECIMAL_OR_NULL,
            }
        ),
    }
)
RECEIPT: Final = object_schema({"txid": HASH, "state": {"enum": ["accepted", "known"]}})
_PAYMENT: Final[dict[str, Schema]] = {
    "recipient": ADDRESS,
    "amount": DECIMAL,
    "amountSvc": COINS,
    "reference": ORDER_REFERENCE,
    "requiredConfirmations": COUNT,
    "sinceHeight": DECIMAL,
}
PAYMENT_REQUEST: Final = object_schema(
    {
        "protocol": _constant("SVC-PAY"),
        "version": _constant(1),
        "networkId": {"type": "integer"},
        **_PAYMENT,
        "label": {"type": "string"},
        "paymentUri": {"type": "string"},
        "walletPath": {"type": "string"},
        "checkoutPath": {"type": "string"},
        "statusPath": {"type": "string"},
    },
    optional=["label"],
)
_TIP: Final = object_schema({"height": DECIMAL, "hash": HASH})
PAYMENT: Final = object_schema(
    {
        "state": {"enum": ["unpaid", "pending", "confirming", "confirmed"]},
        "canonical": {"type": "boolean"},
        "txid": HASH,
        **_PAYMENT,
        "confirmations": COUNT,
        "hardFinality": _constant(False),
        "settlementModel": _constant("canonical-chain-depth"),
        "blockHash": HASH,
        "blockHeight": DECIMAL,
        "blockTime": DECIMAL,
        "matchCount": COUNT,
        "mismatches": {
            "type": "array",
            "maxItems": 10,
            "items": object_schema({"txid": HASH, "amount": DECIMAL, "amountSvc": COINS, "confirmations": COUNT}),
        },
        "tip": _TIP,
        "node": object_schema({"height": DECIMAL, "hash": HASH, "synced": {"type": "boolean"}}),
    },
    optional=["txid", "blockHash", "blockHeight", "blockTime", "sinceHeight"],
)
STATEMENT: Final = object_schema(
    {
        "address": ADDRESS,
        "balance": DECIMAL,
        "entries": {
            "type": "array",
            "maxItems": 500,
            "items": object_schema(
                {
                    "type": {"enum": ["allocation", "received", "sent", "self", "reward"]},
                    "time": DECIMAL,
                    "height": DECIMAL,
                    "index": COUNT,
                    "txid": {"anyOf": [HASH, {"type": "null"}]},
                    "counterparty": {"anyOf": [ADDRESS, {"type": "null"}]},
                    "reference": {"anyOf": [REFERENCE, {"type": "null"}]},
                    "amount": DECIMAL,
                    "amountSvc": COINS,
                    "fee": DECIMAL,
                    "feeSvc": COINS,
                    "confirmations": COUNT,
                }
            ),
        },
        "next": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "tip": _TIP,
    }
)
PAYMENTS: Final = object_schema(
    {
        "payments": {
            "type": "array",
            "maxItems": 100,
            "items": object_schema(
                {
                    "txid": HASH,
                    "sender": ADDRESS,
                    "reference": {"anyOf": [REFERENCE, {"type": "null"}]},
                    "amount": DECIMAL,
                    "amountSvc": COINS,
                    "canonical": {"type": "boolean"},
                    "confirmations": COUNT,
                    "blockHash": HASH,
                    "blockHeight": DECIMAL,
                    "blockTime": DECIMAL,
                    "mismatch": {"enum": ["too-little", "too-much", "duplicate", None]},
                },
                optional=["blockHash", "blockHeight", "blockTime", "mismatch"],
            ),
        },
        "next": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "tip": _TIP,
    }
)
COMMERCE: Final = object_schema(
    {
        "protocol": _constant("SVC-PAY"),
        "version": _constant(1),
        "networkId": {"type": "integer"},
        "chainId": {"type": "string"},
        "genesisHash": HASH,
        "description": {"type": "string"},
        "defaultConfirmations": COUNT,
        "highValueConfirmations": COUNT,
        "hardFinality": _constant(False),
        "settlementModel": _constant("canonical-chain-depth"),
        "webhooksEnabled": {"type": "boolean"},
    }
)
CATALOG: Final[Schema] = {
    "type": "array",
    "items": object_schema(
        {
            "method": {"type": "string"},
            "path": {"type": "string"},
            "description": {"type": "string"},
            "authentication": {"enum": ["none", "bearer"]},
        }
    ),
}
