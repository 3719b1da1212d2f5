"""Chain values as the JSON that clients read (docs/http.md "Bodies")."""

import json

from svcd.chain.accounts import Account
from svcd.chain.difficulty import next_target
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import txid_of
from svcd.chain.transition import ChainPoint
from svcd.chain.units import format_amount
from svcd.chain.work import HASH_LENGTH, PARALLELISM, TIME_COST, VERSION
from svcd.store.chain_store import Place, StoredBlock


def confirmations(tip_height: int, height: int) -> int:
    """How deep the canonical block at ``height`` lies; the tip has one confirmation."""
    return tip_height - height + 1


def account_answer(address: str, account: Account, pending: int) -> bytes:
    """The whole answer for an account, whose next nonce is ``pending`` with the transfers that wait."""
    # Spelt out: the JSON encoder would take as long as reading the account does.
    held_since = "null" if account.held_since is None else f'"{account.held_since}"'
    return (
        f'{{"ok":true,"account":{{"address":"{address}","balance":"{account.balance}",'
        f'"balanceSvc":"{format_amount(account.balance)}","nonce":"{account.nonce}","pendingNonce":"{pending}",'
        f'"heldSince":{held_since}}}}}'
    ).encode("ascii")


def transaction_record(params: NetworkParams, place: Place, tip_height: int) -> bytes:
    """A canonical transfer with where it stands, as JSON: what is stored, and what the chain says of it."""
    # It was checked before it was stored: nothing of it has to be parsed but two amounts.
    fields, point = json.loads(place.body), place.point
    txid = txid_of(place.body, params)
    extra = (
        f',"txid":"{txid.hex()}","amountSvc":"{format_amount(int(fields["payload"]["amount"]))}",'
        f'"feeSvc":"{format_amount(int(fields["fee"]))}","blockHash":"{point.hash.hex()}",'
        f'"blockHeight":"{point.height}","index":{place.position},"slot":"{point.slot}",'
        f'"blockTime":"{params.slot_time(point.slot)}","confirmations":{confirmations(tip_height, point.height)}}}'
    )
    return place.body[:-1] + extra.encode("ascii")


def block_answer(stored: StoredBlock, bodies: list[bytes], tip_height: int) -> bytes:
    """The whole answer for a canonical block, spliced from what is stored: a full block is not parsed to be shown."""
    extra = f'],"hash":"{stored.point.hash.hex()}","confirmations":{confirmations(tip_height, stored.point.height)}}}}}'
    parts = (b'{"ok":true,"block":', stored.header[:-1], b',"transactions":[', b",".join(bodies), extra.encode())
    return b"".join(parts)


def consensus_record(params: NetworkParams, tip: ChainPoint, now: int) -> dict[str, object]:
    """The rules of the network, and what the next block is due; ``now`` in Unix milliseconds."""
    return {
        "networkId": params.network_id,
        "chainId": params.chain_id,
        "genesisHash": params.genesis_hash.hex(),
        "genesisTime": str(params.genesis_time),
        "slotSeconds": params.slot_seconds,
        "currentSlot": str(max(params.slot_at(now), 0)),
        "targetSlotsPerBlock": params.slots_per_block,
        "nextHeight": str(tip.height + 1),
        "nextTarget": f"{next_target(params, height=tip.height + 1, clock=tip.clock):064x}",
        "nextBlockReward": str(params.reward(tip.height + 1)),
        "rewardSchedule": {
            "initialReward": str(params.initial_reward),
            "halvingBlocks": params.halving_blocks,
            "supplyLimit": str(params.supply_limit),
        },
        "participationWork": {
            "algorithm": "argon2id",
            "version": VERSION,
            "memoryKiB": params.memory_kib,
            "timeCost": TIME_COST,
            "parallelism": PARALLELISM,
            "hashLength": HASH_LENGTH,
        },
        "holdingMultiplier": {
            "minimumBalance": str(params.holding_minimum),
            "unit": "basis points",
            "schedule": [{"heldSlots": held, "multiplier": points} for held, points in params.multiplier_schedule],
        },
        "minimumFee": str(params.minimum_fee),
        "maxBlockTransactions": params.max_block_transactions,
        "maxBlockBytes": params.max_block_bytes,
        "transactionPastSeconds": params.transaction_past_seconds,
        "transactionFutureSeconds": params.transaction_future_seconds,
    }
