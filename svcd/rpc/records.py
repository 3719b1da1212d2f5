"""Chain values as the JSON that clients read (docs/http.md "Bodies")."""

import json

from svcd.chain.difficulty import next_target
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import parse_transfer
from svcd.chain.transition import ChainPoint
from svcd.chain.units import format_amount
from svcd.chain.work import HASH_LENGTH, PARALLELISM, TIME_COST, VERSION
from svcd.store.chain_store import Place, StoredBlock


def confirmations(tip: ChainPoint, height: int) -> int:
    """How deep the canonical block at ``height`` lies; the tip has one confirmation."""
    return tip.height - height + 1


def transaction_record(params: NetworkParams, place: Place, tip: ChainPoint) -> dict[str, object]:
    """A canonical transfer with where it stands."""
    fields = json.loads(place.body)
    transfer = parse_transfer(fields, params)
    return {
        **fields,
        "txid": transfer.txid.hex(),
        "amountSvc": format_amount(transfer.amount),
        "feeSvc": format_amount(transfer.fee),
        "blockHash": place.point.hash.hex(),
        "blockHeight": str(place.point.height),
        "index": place.position,
        "slot": str(place.point.slot),
        "blockTime": str(params.slot_time(place.point.slot)),
        "confirmations": confirmations(tip, place.point.height),
    }


def block_answer(stored: StoredBlock, bodies: list[bytes], tip: ChainPoint) -> bytes:
    """The whole answer for a canonical block, spliced from what is stored: a full block is not parsed to be shown."""
    extra = f'],"hash":"{stored.point.hash.hex()}","confirmations":{confirmations(tip, stored.point.height)}}}}}'
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
