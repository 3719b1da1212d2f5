"""JSON schemas of the requests and responses of the chain routes, for the OpenAPI document.

svcd/chain_schemas.py has the schemas of blocks and transfers. CONTRIBUTING.md ("Common changes") says what else changes
with a field of a response; the tests compare every response with its schema.
"""

from typing import Final

from svcd.chain.params import MAINNET
from svcd.chain_schemas import (
    ADDRESS,
    BASE_UNITS,
    CHAIN_ID,
    COUNT,
    FEE,
    GENESIS_HASH,
    HASH,
    INDEX,
    NETWORK_ID,
    NODE_ID,
    PRUNE_HEIGHT,
    REFERENCE,
    SINCE_HEIGHT,
    SLOT,
    SOME_ADDRESS,
    TIME,
    TIP_HASH,
    TIP_HEIGHT,
    TRANSFER_FIELDS,
    WHOLE_NUMBER,
)
from svcd.chain_schemas import CONFIRMATIONS as CONFIRMATION_COUNT
from svcd.commerce.payment import HASHES_PER_CORE_SECOND, PaymentState
from svcd.web.field_types import Choice, Schema, all_described, component, constant, described, or_null, with_example
from svcd.web.routes import named_object, object_schema

COINS: Final = component(
    "Coins",
    {
        "type": "string",
        "pattern": "^(0|[1-9][0-9]*)(\\.[0-9]{0,7}[1-9])?$",
        "description": "An amount in coins, in the shortest form.",
        "examples": ["25"],
    },
)
ORDER_REFERENCE: Final = component(
    "OrderReference",
    {
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "pattern": "^[A-Za-z0-9._:-]+$",
        "not": {"enum": [".", ".."]},
        "description": "The reference of an order, which paths have too.",
        "examples": ["order-1001"],
    },
)
STATE: Final = Choice(tuple(PaymentState), PaymentState, name="PaymentState")
_STRING: Final[Schema] = {"type": "string"}
SOME_CURSOR: Final = "AQAAAAAAAP__AAAAAAAAAAAAAAAAAAAAAAEjRWeJq83vASNFZ4mrze8"
"""The end of a feed at the genesis block of some network."""
_LAST: Final = with_example(or_null(_STRING), None)
"""The `next` of a page."""
_FEE_COINS: Final = with_example(COINS, "0.0001")
_READABLE: Final[dict[str, Schema]] = {"txid": HASH, "amountSvc": COINS, "feeSvc": _FEE_COINS}
RECORD: Final = named_object(
    "ConfirmedTransfer",
    {
        **TRANSFER_FIELDS,
        **_READABLE,
        "blockHash": HASH,
        "blockHeight": WHOLE_NUMBER,
        "index": described(INDEX, "The position in the block, from 0."),
        "slot": SLOT,
        "blockTime": described(TIME, "The start of the block's slot."),
        "confirmations": described(CONFIRMATION_COUNT, "The height of the newest block - `blockHeight` + 1."),
    },
    about="A canonical transfer and its position in the chain.",
)
STATUS: Final = named_object(
    "Status",
    {
        "softwareVersion": constant("0.0.1"),
        "protocolVersion": constant("1.0"),
        "networkId": NETWORK_ID,
        "chainId": CHAIN_ID,
        "genesisHash": GENESIS_HASH,
        "height": described(TIP_HEIGHT, "The height of the newest block."),
        "slot": described(with_example(SLOT, "71"), "The slot of the newest block."),
        "hash": described(TIP_HASH, "The hash of the newest block."),
        "stateRoot": described(HASH, "The root of all accounts after the newest block."),
        "consensusRoot": described(HASH, "The root of rules and history after the newest block."),
        "pruneHeight": PRUNE_HEIGHT,
        "nodeId": described(NODE_ID.schema, "The public name of the node's key."),
        "endpoint": described(
            with_example(_STRING, "https://node.example.org"),
            "The public URL of the node; missing if its operator has set none.",
        ),
        "knownPeerCount": described(COUNT, "How many peers the node has."),
        "bestKnownPeerHeight": described(
            TIP_HEIGHT, "The greatest height of a peer; one above `height` counts only once headers prove more work."
        ),
        "syncLagBlocks": described(with_example(WHOLE_NUMBER, "0"), "How far `height` is below `bestKnownPeerHeight`."),
        "syncState": {
            "type": "string",
            "enum": ["synced", "catching-up"],
            "description": "`catching-up` while the node cannot assume that its newest block is the network's: "
            "do not rely on the confirmations that it reports.",
        },
        "alone": described(
            {"type": "boolean"},
            "Whether the node makes its own chain, and nothing compares it: its operator lets it be alone, and it has "
            "no peer. Its `syncState` is `synced` then, for there is nothing to fetch.",
        ),
        "time": described(TIME, "The clock of the node."),
    },
    optional=["endpoint", "stateRoot", "consensusRoot", "knownPeerCount", "bestKnownPeerHeight", "syncLagBlocks"],
)


def _pair(one: Schema, example: list[object]) -> Schema:
    return with_example({"type": "array", "items": one, "minItems": 2, "maxItems": 2}, example)


RULES: Final = named_object(
    "Rules",
    all_described(
        {
            "chainId": CHAIN_ID,
            "networkId": NETWORK_ID,
            "addressPrefix": with_example(_STRING, MAINNET.address_prefix),
            "genesisTime": TIME,
            "slotSeconds": COUNT,
            "slotsPerBlock": COUNT,
            "halfLifeSlots": COUNT,
            "gapCapSlots": COUNT,
            "memoryKiB": COUNT,
            "initialTarget": HASH,
            "maxTarget": HASH,
            "minTarget": HASH,
            "initialReward": BASE_UNITS,
            "halvingBlocks": COUNT,
            "minimumFee": FEE,
            "accountMinimum": BASE_UNITS,
            "holdingMinimum": BASE_UNITS,
            "multiplierSchedule": {"type": "array", "items": _pair(COUNT, [0, 10_000])},
            "maxBlockTransactions": COUNT,
            "maxBlockBytes": COUNT,
            "transactionPastSeconds": COUNT,
            "transactionFutureSeconds": COUNT,
            "producers": {"type": "array", "items": ADDRESS},
            "allocations": {"type": "array", "items": _pair(_STRING, [SOME_ADDRESS, "100000000000000"])},
        },
        {
            "chainId": "The name of the chain.",
            "networkId": "Part of every transfer, block and hello.",
            "addressPrefix": "The first characters of addresses.",
            "genesisTime": "When slot 0 begins.",
            "slotSeconds": "The length of a slot.",
            "slotsPerBlock": "The target number of slots between blocks.",
            "halfLifeSlots": "The lag after which the target doubles.",
            "gapCapSlots": "The upper bound of a gap between blocks in the difficulty clock.",
            "memoryKiB": "The memory of one Argon2id evaluation.",
            "initialTarget": "The target of block 1.",
            "maxTarget": "The easiest target.",
            "minTarget": "The hardest target.",
            "initialReward": "The reward of block 1.",
            "halvingBlocks": "After so many blocks the reward halves; 0 if it never does.",
            "minimumFee": "The least fee of a transfer.",
            "accountMinimum": "What sender and recipient must each have after a transfer.",
            "holdingMinimum": "The balance that counts as holding.",
            "multiplierSchedule": "Pairs of slots held and basis points.",
            "maxBlockTransactions": "The most transfers in a block.",
            "maxBlockBytes": "The most bytes of a block, transfers included.",
            "transactionPastSeconds": "How old a transfer may be at the time of its block.",
            "transactionFutureSeconds": "How far a transfer may be ahead of the time of its block.",
            "producers": "The addresses that may make blocks until a change; empty if everybody may.",
            "allocations": "Pairs of address and balance that exist from the start.",
        },
    ),
    about="The rules that give the genesis hash, under their names in docs/protocol.md 1.",
)
CHANGES: Final[Schema] = {
    "type": "array",
    "items": named_object(
        "ProducerChange",
        {"height": WHOLE_NUMBER, "producers": {"type": "array", "items": ADDRESS}},
        about="The producers from a height on, in place of those before (docs/protocol.md 8a).",
    ),
}
CONSENSUS: Final = named_object(
    "Consensus",
    all_described(
        {
            "networkId": NETWORK_ID,
            "chainId": CHAIN_ID,
            "genesisHash": GENESIS_HASH,
            "genesisTime": TIME,
            "slotSeconds": COUNT,
            "currentSlot": described(SLOT, "By the clock of the node."),
            "targetSlotsPerBlock": COUNT,
            "nextHeight": described(WHOLE_NUMBER, "The height of the next block."),
            "nextTarget": described(HASH, "The target of the next block."),
            "nextBlockReward": described(BASE_UNITS, "The reward of the next block."),
            "rewardSchedule": named_object(
                "RewardSchedule",
                {
                    "initialReward": BASE_UNITS,
                    "halvingBlocks": COUNT,
                    "supplyLimit": with_example(WHOLE_NUMBER, "8399999972700000"),
                },
            ),
            "participationWork": named_object(
                "ParticipationWork",
                {
                    "algorithm": constant("argon2id"),
                    "version": constant(19),
                    "memoryKiB": COUNT,
                    "timeCost": COUNT,
                    "parallelism": COUNT,
                    "hashLength": COUNT,
                },
            ),
            "holdingMultiplier": named_object(
                "HoldingMultiplier",
                {
                    "minimumBalance": BASE_UNITS,
                    "unit": constant("basis points"),
                    "schedule": {
                        "type": "array",
                        "items": named_object("HoldingStep", {"heldSlots": COUNT, "multiplier": COUNT}),
                    },
                },
            ),
            "minimumFee": FEE,
            "accountMinimum": described(
                BASE_UNITS, "After a transfer its sender and its recipient must each have at least so much."
            ),
            "maxBlockTransactions": COUNT,
            "maxBlockBytes": COUNT,
            "transactionPastSeconds": COUNT,
            "transactionFutureSeconds": COUNT,
            "producers": {"type": "array", "items": ADDRESS},
        },
        {
            "chainId": "The name of the chain.",
            "networkId": "Part of every transfer, block and hello.",
            "genesisTime": "When slot 0 begins.",
            "slotSeconds": "The length of a slot.",
            "minimumFee": "The least fee of a transfer.",
            "maxBlockTransactions": "The most transfers in a block.",
            "maxBlockBytes": "The most bytes of a block, transfers included.",
            "transactionPastSeconds": "How old a transfer may be at the time of its block.",
            "transactionFutureSeconds": "How far a transfer may be ahead of the time of its block.",
            "targetSlotsPerBlock": "The target number of slots between blocks.",
            "producers": "The addresses that may make blocks until a change; empty if everybody may.",
        },
    ),
    about="The rules of the network, and what the next block is due.",
)
ACCOUNT: Final = named_object(
    "Account",
    {
        "address": ADDRESS,
        "balance": described(BASE_UNITS, "After the newest block; transfers in the mempool do not count."),
        "balanceSvc": COINS,
        "nonce": described(WHOLE_NUMBER, "The next nonce on the chain: how many transfers the account has sent."),
        "pendingNonce": described(
            WHOLE_NUMBER, "The nonce for a new transfer: counts transfers in the mempool too, up to the first gap."
        ),
        "pendingBalance": described(
            BASE_UNITS, "`balance` minus the account's own transfers in the mempool; incoming ones do not count yet."
        ),
        "heldSince": described(
            or_null(WHOLE_NUMBER),
            "The slot since which the account has held the minimum balance of the holding multiplier, or null.",
        ),
    },
)
HISTORY: Final = object_schema(
    {
        "address": ADDRESS,
        "transactions": {"type": "array", "items": RECORD, "description": "The newest first."},
        "next": described(_LAST, "The `before` of the following page; null on the last one."),
        "pruneHeight": PRUNE_HEIGHT,
    },
)
WAITING: Final = object_schema(
    {
        "address": ADDRESS,
        "transactions": {
            "type": "array",
            "items": named_object("WaitingTransfer", {**TRANSFER_FIELDS, **_READABLE}),
            "description": "The newest first.",
        },
        "next": described(
            with_example(or_null(WHOLE_NUMBER), None), "The `before` of the following page; null on the last one."
        ),
    }
)
FEES: Final = named_object(
    "Fees",
    {
        "minimumFee": described(FEE, "The minimum fee of the network."),
        "suggestedFee": described(
            FEE,
            "The fee for a new transfer: `minimumFee` while the next block has room, otherwise what would get into it.",
        ),
        "transferBytes": described(
            with_example(COUNT, 800),
            "The maximum length of a transfer, for which `floor` and `suggestedFee` are computed.",
        ),
        "mempool": named_object(
            "MempoolFees",
            {
                "transactions": described(COUNT, "How many transfers are pending."),
                "bytes": described(with_example(COUNT, 1500), "Their total size."),
                "floor": described(
                    or_null(FEE),
                    "The lowest fee that admits another transfer; null while no fee does, because others depend on all"
                    " transfers of a full mempool.",
                ),
            },
        ),
    },
    about="All fees are in base units.",
)
_ORDER: Final[dict[str, Schema]] = {
    "recipient": ADDRESS,
    "amount": BASE_UNITS,
    "amountSvc": COINS,
    "reference": ORDER_REFERENCE,
    "requiredConfirmations": CONFIRMATION_COUNT,
    "sinceHeight": SINCE_HEIGHT,
}
_PAYMENT: Final = all_described(
    _ORDER,
    {
        "recipient": "The address that is to be paid.",
        "amount": "The exact amount of the order, in base units.",
        "amountSvc": "The same in coins.",
        "requiredConfirmations": "How many confirmations the payment needs to be `confirmed`.",
        "sinceHeight": "Transfers in blocks below this height do not count.",
    },
)
PAYMENT_REQUEST: Final = named_object(
    "PaymentRequest",
    all_described(
        {
            "protocol": constant("SVC-PAY"),
            "version": constant(1),
            "networkId": NETWORK_ID,
            **_PAYMENT,
            "label": with_example(_STRING, "Two coffees"),
            "paymentUri": with_example(
                _STRING, f"svc:{SOME_ADDRESS}?amount=25&ref=order-1001&confirmations=12&label=Two%20coffees"
            ),
            "walletPath": with_example(
                _STRING,
                f"/wallet/?pay=svc%3A{SOME_ADDRESS}%3Famount%3D25%26ref%3Dorder-1001%26confirmations%3D12"
                "%26label%3DTwo%2520coffees",
            ),
            "checkoutPath": with_example(
                _STRING,
                f"/pay/?reference=order-1001&recipient={SOME_ADDRESS}&amount=25&confirmations=12&sinceHeight=0"
                "&label=Two%20coffees",
            ),
            "statusPath": with_example(
                _STRING,
                f"/rpc/commerce/payment/order-1001?recipient={SOME_ADDRESS}&amountBaseUnits=2500000000&confirmations=12"
                "&sinceHeight=0",
            ),
            "warning": with_example(
                _STRING,
                "nobody can pay this now: the recipient has 0 SVC and must have 0.01 SVC after a transfer; request "
                "at least 0.01 SVC, or send coins to the recipient first",
            ),
        },
        {
            "protocol": "The name of the payment protocol.",
            "version": "The version of the payment protocol.",
            "label": "The name of the order, for people; not signed.",
            "paymentUri": "The link for a wallet on the device of the buyer.",
            "walletPath": "The path of the wallet page of a node, with the order.",
            "checkoutPath": "The path of the checkout of a node, with a QR code and the state of the payment.",
            "statusPath": "The path that verifies the payment.",
            "warning": "Present if nobody can pay this now, because the recipient has less than the account minimum "
            "and the amount is too small; names the least amount that can be paid.",
        },
    ),
    optional=["label", "warning"],
)
TIP: Final = named_object("Tip", {"height": TIP_HEIGHT, "hash": TIP_HASH}, about="The newest canonical block.")
_SEEN: Final[dict[str, Schema]] = {
    "state": with_example(STATE.schema, "confirmed"),
    "canonical": {"type": "boolean"},
    "txid": HASH,
    **_PAYMENT,
    "confirmations": CONFIRMATION_COUNT,
    "hardFinality": constant(False),
    "settlementModel": constant("canonical-chain-depth"),
    "blockHash": HASH,
    "blockHeight": WHOLE_NUMBER,
    "blockTime": TIME,
    "matchCount": with_example(COUNT, 1),
    "mismatches": {
        "type": "array",
        "maxItems": 10,
        "items": named_object(
            "Mismatch",
            {
                "txid": HASH,
                "amount": BASE_UNITS,
                "amountSvc": COINS,
                "confirmations": described(CONFIRMATION_COUNT, "0 in the mempool."),
            },
        ),
        "examples": [[]],
    },
}
_DECIMAL: Final[Schema] = {"type": "string", "pattern": r"^(0|[1-9][0-9]*)\.[0-9]+$"}
WORK: Final = named_object(
    "PaymentWork",
    all_described(
        {
            "hashesToUndo": with_example(_STRING, "196560"),
            "coreHoursToUndo": with_example(_DECIMAL, "0.3956"),
            "workConfirmations": with_example(_DECIMAL, "12.00"),
        },
        {
            "hashesToUndo": "The expected hashes for the block of the payment and those on top of it.",
            "coreHoursToUndo": "The same in hours of one core.",
            "workConfirmations": "The same in blocks of the present work: divided by the hashes of the median block.",
        },
    ),
    about=(
        "What undoing the payment takes: the expected hashes for its block and those on top of it, the hours of one "
        f"core at {HASHES_PER_CORE_SECOND} hashes a second, and the hashes divided by those of the median block of the "
        "last 1,440; rounded down. Missing while the payment is in no block."
    ),
)
_OBSERVED: Final = all_described(
    {**_SEEN, "work": WORK},
    {
        "state": "`unpaid` without a matching transfer, `pending` while one waits in the mempool, `confirming` and "
        "`confirmed` while one is on the chain; a reorganisation can bring any state back.",
        "canonical": "Whether the payment is in a block of the chain.",
        "txid": "The transfer that pays the order; missing if there is none.",
        "confirmations": "The height of the tip - `blockHeight` + 1; 0 if the payment is not on the chain.",
        "hardFinality": "A reorganisation can undo any payment.",
        "settlementModel": "The state counts confirmations on the chain that the node considers canonical.",
        "blockHash": "The block that contains the payment.",
        "blockHeight": "The height of that block.",
        "blockTime": "The start of that block's slot.",
        "matchCount": "How many transfers match, counted up to 32; refund all but one.",
        "mismatches": "Transfers to the recipient under the reference with another amount, those with the nearest "
        "amounts among the first 100 transfers under the reference from `sinceHeight` on; none is a payment.",
    },
)
_OPTIONAL: Final = ("txid", "blockHash", "blockHeight", "blockTime", "sinceHeight", "work")
NODE_VIEW: Final = named_object(
    "NodeView",
    all_described(
        {"height": TIP_HEIGHT, "hash": TIP_HASH, "synced": {"type": "boolean"}},
        {
            "height": "The height of the newest block.",
            "hash": "The hash of the newest block.",
            "synced": "False while the node is catching up or has stalled: do not deliver then.",
        },
    ),
    about="The block at which the node determined the state.",
)
PAYMENT: Final = named_object(
    "Payment",
    {**_OBSERVED, "tip": TIP, "node": NODE_VIEW},
    optional=_OPTIONAL,
    about="What chain and mempool show of an order.",
)
CONFIRMATIONS: Final = named_object(
    "Confirmations",
    all_described(
        {
            "confirmations": CONFIRMATION_COUNT,
            "capped": with_example({"type": "boolean"}, False),
            "amount": BASE_UNITS,
            "amountSvc": COINS,
            "coinPrice": with_example(_STRING, "0.5"),
            "hashPrice": with_example(_STRING, "0.01"),
            "costToUndo": with_example(_STRING, "18.18181811"),
            "hashesPerBlock": with_example(WHOLE_NUMBER, "82800000"),
            "hashesPerSecond": with_example(WHOLE_NUMBER, "1380000"),
            "hashesPerCoreSecond": constant(HASHES_PER_CORE_SECOND),
            "blocks": with_example(COUNT, 1440),
        },
        {
            "confirmations": "The required number, from 12 to 1,000.",
            "capped": "Whether undoing 1,000 confirmations costs less than the amount is worth.",
            "coinPrice": "The price of a coin that was given, or 1.",
            "hashPrice": "The price of an hour of one core that was given, or 0.01.",
            "costToUndo": "The price of undoing `confirmations`, in the currency of the prices.",
            "hashesPerBlock": "Of the median of the newest `blocks` blocks.",
            "hashesPerSecond": "The hash rate of the network in these blocks.",
            "hashesPerCoreSecond": "The assumed hash rate of one core.",
            "blocks": "How many of the newest blocks are counted.",
        },
    ),
    about=(
        "How many confirmations make undoing a payment cost more than its amount. `capped`: even the most that can be "
        "required, 1,000, do not. `costToUndo` is the price of undoing so many, in the currency of the prices; the "
        "hashes are those of the median block, and of a second, of the newest `blocks` blocks."
    ),
)
EVENT_PAYMENT: Final = named_object(
    "EventPayment", _OBSERVED, optional=_OPTIONAL, about="A payment as events have it, with the tip beside it."
)
STATEMENT: Final = object_schema(
    {
        "address": ADDRESS,
        "balance": described(BASE_UNITS, "After the block `tip`: the sum of all entries up to it."),
        "entries": {
            "type": "array",
            "maxItems": 500,
            "items": named_object(
                "StatementEntry",
                all_described(
                    {
                        "type": {
                            "type": "string",
                            "enum": ["allocation", "received", "sent", "self", "reward"],
                            "examples": ["received"],
                            "description": "`allocation` (in the genesis block), `received` and `reward` add `amount` "
                            "to the balance, `sent` subtracts it. `self` is a transfer from the address to itself, of "
                            "which only the fee changes the balance.",
                        },
                        "time": described(TIME, "The start of the block's slot, not the time of the signature."),
                        "height": WHOLE_NUMBER,
                        "index": described(INDEX, "The position in the block; a reward comes after all transfers."),
                        "txid": or_null(HASH),
                        "counterparty": or_null(ADDRESS),
                        "reference": or_null(REFERENCE),
                        "amount": described(BASE_UNITS, "Of a reward: with all fees in the block."),
                        "amountSvc": COINS,
                        "fee": described(
                            with_example(WHOLE_NUMBER, "0"),
                            "What this address paid; 0 for a transfer that it received.",
                        ),
                        "feeSvc": with_example(COINS, "0"),
                        "confirmations": CONFIRMATION_COUNT,
                    },
                    {
                        "height": "The height of the block.",
                        "txid": "Null for an allocation and a reward.",
                        "counterparty": "The other address of a transfer; null for an allocation and a reward.",
                        "reference": "The payment reference of a transfer; null without one.",
                        "confirmations": "The height of the tip - `height` + 1.",
                    },
                ),
            ),
        },
        "next": described(
            _LAST,
            "The `after` of the following page; null on the last one. A page covers at most 2,000 blocks, so it may "
            "have few or no entries and still a `next`.",
        ),
        "tip": TIP,
    }
)
PAYMENTS: Final = object_schema(
    {
        "payments": {
            "type": "array",
            "maxItems": 100,
            "items": named_object(
                "ReceivedPayment",
                all_described(
                    {
                        "txid": HASH,
                        "sender": ADDRESS,
                        "reference": or_null(REFERENCE),
                        "amount": BASE_UNITS,
                        "amountSvc": COINS,
                        "canonical": {"type": "boolean"},
                        "confirmations": CONFIRMATION_COUNT,
                        "blockHash": HASH,
                        "blockHeight": WHOLE_NUMBER,
                        "blockTime": TIME,
                        "mismatch": with_example(
                            or_null({"type": "string", "enum": ["too-little", "too-much", "duplicate"]}), None
                        ),
                    },
                    {
                        "sender": "The address that paid.",
                        "reference": "Null for a transfer without one.",
                        "canonical": "Whether the transfer is in a block of the chain; false while it waits in the "
                        "mempool.",
                        "confirmations": "The height of the tip - `blockHeight` + 1; 0 in the mempool.",
                        "blockTime": "The start of the block's slot.",
                        "mismatch": "Present if an amount was given: what is wrong, `duplicate` for the right amount "
                        "after another transfer has paid the order, or null for the transfer that pays it.",
                    },
                ),
                optional=["blockHash", "blockHeight", "blockTime", "mismatch"],
            ),
        },
        "next": described(
            _LAST,
            "The `after` of the following page; null on the last one. A page may have few or no transfers and still a "
            "`next`.",
        ),
        "tip": TIP,
    }
)
_FEED_TRANSFER: Final[dict[str, Schema]] = {
    "txid": HASH,
    "reference": described(or_null(REFERENCE), "Null for a transfer without one."),
    "amount": BASE_UNITS,
    "amountSvc": COINS,
    "sender": described(ADDRESS, "The address that paid; the recipient itself for a transfer to oneself."),
}
FEED: Final = named_object(
    "Feed",
    {
        "entries": {
            "type": "array",
            "maxItems": 1_000,
            "description": "What has happened on the chain after `after`, in the order in which to apply it.",
            "items": {
                "oneOf": [
                    named_object(
                        "FeedPayment",
                        {
                            "type": constant("payment"),
                            **_FEED_TRANSFER,
                            "height": described(WHOLE_NUMBER, "The height of its block."),
                            "hash": described(HASH, "The hash of its block."),
                            "time": described(TIME, "The start of the slot of its block."),
                            "position": described(INDEX, "Its position in the block, from 0."),
                        },
                        about="A transfer to the recipient in a block of the chain.",
                    ),
                    named_object(
                        "FeedRewind",
                        {
                            "type": constant("rewind"),
                            "height": described(WHOLE_NUMBER, "Of a block that has stayed on the chain."),
                            "hash": described(HASH, "The hash of this block."),
                        },
                        about="Every payment above this height that the feed has told is undone; what there is now "
                        "follows.",
                    ),
                ]
            },
        },
        "pending": {
            "type": "array",
            "maxItems": 1_000,
            "description": "All transfers to the recipient that wait in the mempool of this node, at most 1,000, the "
            "oldest first. An entry that has told one counts more.",
            "items": named_object(
                "FeedPending",
                {**_FEED_TRANSFER, "arrivalTime": described(TIME, "When it came to this node.")},
            ),
        },
        "next": described(with_example(_STRING, SOME_CURSOR), "The `after` of the following request; never null."),
        "tip": TIP,
        "node": NODE_VIEW,
    },
    about="Payments to an address in the order of the chain, and what reorganisations have undone.",
)
COMMERCE: Final = named_object(
    "CommerceInfo",
    all_described(
        {
            "protocol": constant("SVC-PAY"),
            "version": constant(1),
            "networkId": NETWORK_ID,
            "chainId": CHAIN_ID,
            "genesisHash": GENESIS_HASH,
            "description": with_example(_STRING, "Payments by reference, without accounts."),
            "defaultConfirmations": CONFIRMATION_COUNT,
            "highValueConfirmations": with_example(COUNT, 30),
            "hardFinality": constant(False),
            "settlementModel": constant("canonical-chain-depth"),
            "webhooksEnabled": {"type": "boolean"},
        },
        {
            "protocol": "The name of the payment protocol.",
            "version": "The version of the payment protocol.",
            "description": "What the interface is for, in a sentence.",
            "defaultConfirmations": "The required confirmations of an order that names none.",
            "highValueConfirmations": "The confirmations to require for high values.",
            "hardFinality": "A reorganisation can undo any payment.",
            "settlementModel": "A payment is `confirmed` if it has the required confirmations on the chain that the "
            "node considers canonical.",
            "webhooksEnabled": "Whether the node accepts watches.",
        },
    ),
)
CATALOG: Final[Schema] = {
    "type": "array",
    "items": named_object(
        "CatalogEntry",
        all_described(
            {
                "method": with_example(_STRING, "GET"),
                "path": with_example(_STRING, "/rpc/commerce/info"),
                "description": with_example(_STRING, "The network and the defaults for payments"),
                "authentication": {"type": "string", "enum": ["none", "bearer"]},
            },
            {
                "method": "The HTTP method.",
                "path": "The path of the route, with placeholders in braces.",
                "description": "What the route does.",
                "authentication": "`bearer` if it needs the management token.",
            },
        ),
    ),
}
