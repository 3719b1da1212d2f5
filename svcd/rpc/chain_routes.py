"""The public chain routes (docs/http.md)."""

import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from svcd.chain.accounts import Account
from svcd.chain.address import decode_address
from svcd.chain.difficulty import next_target
from svcd.chain.params import MAINNET, NetworkParams
from svcd.chain.transaction import parse_transfer, txid_of
from svcd.chain.transition import ChainPoint, genesis_point
from svcd.chain.units import format_amount
from svcd.chain.work import HASH_LENGTH, PARALLELISM, TIME_COST, VERSION
from svcd.chain_schemas import BLOCK, PRUNE_HEIGHT, PRUNED, RECEIPT
from svcd.interfaces import Clock, milliseconds
from svcd.node.chain_manager import ChainManager
from svcd.node.status import Status
from svcd.node.transaction_pool import TransactionPool
from svcd.rpc import schemas
from svcd.rpc.fields import ADDRESS, BEFORE, HEIGHT, LIMIT, NEWEST, TRANSACTION, TXID
from svcd.store.chain_store import ChainReader, PlacedTransfer, StoredBlock
from svcd.store.pruned import Pruned
from svcd.web.rate_limits import LOOKUP
from svcd.web.responses import Cached, HttpError, Renderable, Response, Tip, json_body, tip_of
from svcd.web.routes import Route, object_schema


def tip_at(point: ChainPoint) -> Tip:
    """The tip at ``point``."""
    return tip_of(point.height, point.hash)


class ShowsChain:
    """The base of routes that show the chain."""

    _chain_manager: ChainManager

    @property
    def tip(self) -> Tip:
        """The tip that the chain manager last announced, to which mempool and status belong."""
        return tip_at(self._chain_manager.tip)


def confirmations(tip_height: int, height: int) -> int:
    """The confirmations of the canonical block at ``height``; the tip has one."""
    return tip_height - height + 1


def account_answer(address: str, account: Account, *, pending_nonce: int, pending_balance: int) -> bytes:
    """The whole answer for an account; the pending values count its waiting transfers too."""
    # Formatted by hand: the JSON encoder would take as long as reading the account does.
    held_since = "null" if account.held_since is None else f'"{account.held_since}"'
    return (
        f'{{"ok":true,"account":{{"address":"{address}","balance":"{account.balance}",'
        f'"balanceSvc":"{format_amount(account.balance)}","nonce":"{account.nonce}","pendingNonce":"{pending_nonce}",'
        f'"pendingBalance":"{pending_balance}","heldSince":{held_since}}}}}'
    ).encode("ascii")


def transaction_record(params: NetworkParams, stored: PlacedTransfer, tip_height: int) -> bytes:
    """A canonical transfer as JSON: its stored form, and its position in the chain."""
    # The transfer was checked before it was stored, so only its two amounts are parsed.
    body = stored.body
    fields, txid = json.loads(body), txid_of(body, params)
    extra = (
        f',"txid":"{txid.hex()}","amountSvc":"{format_amount(int(fields["payload"]["amount"]))}",'
        f'"feeSvc":"{format_amount(int(fields["fee"]))}","blockHash":"{stored.block_hash.hex()}",'
        f'"blockHeight":"{stored.height}","index":{stored.position},"slot":"{stored.slot}",'
        f'"blockTime":"{params.slot_time(stored.slot)}","confirmations":{confirmations(tip_height, stored.height)}}}'
    )
    return body[:-1] + extra.encode("ascii")


def block_answer(stored: StoredBlock, bodies: list[bytes], tip_height: int) -> bytes:
    """The response for a canonical block, spliced from its stored bytes without parsing them."""
    extra = f'],"hash":"{stored.point.hash.hex()}","confirmations":{confirmations(tip_height, stored.point.height)}}}}}'
    parts = (b'{"ok":true,"block":', stored.header[:-1], b',"transactions":[', b",".join(bodies), extra.encode())
    return b"".join(parts)


def consensus_record(params: NetworkParams, tip: ChainPoint, now: int) -> dict[str, object]:
    """The rules of the network and the values due for the next block; ``now`` in Unix milliseconds."""
    return {
        "networkId": params.network_id,
        "chainId": params.chain_id,
        "genesisHash": params.genesis_hash.hex(),
        "genesisTime": str(params.genesis_time),
        "slotSeconds": params.slot_seconds,
        "currentSlot": str(max(params.slot_at(now), 0)),
        "targetSlotsPerBlock": params.slots_per_block,
        "nextHeight": str(tip.height + 1),
        "nextTarget": f"{next_target(params, height=tip.height + 1, clock=tip.difficulty_clock):064x}",
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
        "accountMinimum": str(params.account_minimum),
        "maxBlockTransactions": params.max_block_transactions,
        "maxBlockBytes": params.max_block_bytes,
        "transactionPastSeconds": params.transaction_past_seconds,
        "transactionFutureSeconds": params.transaction_future_seconds,
        "producers": list(params.producers),
    }


def _no_block(height: int, tip: ChainPoint) -> HttpError:
    sentence = f"there is no block {height} yet; the newest is {tip.height}"
    return HttpError(404, sentence, tip=tip_at(tip))


_IN_MEMPOOL: Final = {"type": "boolean", "description": "Whether the transfer waits in the mempool of this node."}
_FEW: Final = 64
"""A block with this many transfers is read in 0.1 ms, faster than it is handed to a thread."""


def _not_narrowed(record: Mapping[str, object]) -> Mapping[str, object]:
    """The values of mainnet in an example, but for what differs in the schemas of other networks."""
    own = ("chainId", "networkId", "genesisHash", "producers", "allocations")
    return {name: value for name, value in record.items() if name not in own}


_CONSENSUS: Final = consensus_record(MAINNET, genesis_point(MAINNET), MAINNET.slot_time(71))


class ChainRoutes(ShowsChain):
    """Reads of the canonical chain, and the submission of signed transfers."""

    def __init__(
        self, chain_manager: ChainManager, *, transaction_pool: TransactionPool, status: Status, clock: Clock
    ) -> None:
        self._chain_manager = chain_manager
        self._params = chain_manager.params
        self._transaction_pool = transaction_pool
        self._status = status
        self._clock = clock
        self._kept_status: Cached[tuple[bytes, bytes, Tip]] = Cached()
        self._kept_consensus: Cached[Response] = Cached()
        told = {"rules": self._params.rules, "changes": self._params.listed_changes}
        self._rules = Response(json_body(told))

    @Route(
        "GET",
        "/rpc/status",
        "The node and its tip",
        bucket="read",
        shows_chain=True,
        answers={200: object_schema({"status": schemas.STATUS})},
    )
    def status(self) -> Renderable:
        """Answer GET /rpc/status."""
        before, after, tip = self._kept_status.get(self._status.revision(), self._status_but_the_time)
        return Response(b'%b"%d"%b' % (before, milliseconds(self._clock), after), tip=tip)

    def _status_but_the_time(self) -> tuple[bytes, bytes, Tip]:
        """The answer in two parts, and its tip."""
        mark = "the time"
        before, _, after = json_body({"status": {**self._status.node_status(), "time": mark}}).partition(
            f'"{mark}"'.encode("ascii")
        )
        return before, after, self.tip

    @Route(
        "GET",
        "/rpc/consensus",
        "The rules of the network, and target and reward of the next block",
        bucket="read",
        shows_chain=True,
        answers={200: object_schema({"consensus": schemas.CONSENSUS})},
        example={"consensus": {**_not_narrowed(_CONSENSUS), "nextHeight": "15"}},
    )
    def consensus(self) -> Renderable:
        """Answer GET /rpc/consensus."""
        tip, now = self._chain_manager.tip, milliseconds(self._clock)

        def render() -> Response:
            return Response(json_body({"consensus": consensus_record(self._params, tip, now)}), tip=tip_at(tip))

        return self._kept_consensus.get((tip.hash, self._params.slot_at(now)), render)

    @Route(
        "GET",
        "/rpc/rules",
        "The rules of the network, which give its genesis hash, and the changes of its producers",
        bucket="read",
        answers={200: object_schema({"rules": schemas.RULES, "changes": schemas.CHANGES})},
        example={"rules": _not_narrowed(MAINNET.rules)},
    )
    def rules(self) -> Renderable:
        """Answer GET /rpc/rules."""
        return self._rules

    @Route(
        "GET",
        "/rpc/block/{height}",
        "The canonical block at a height",
        bucket="read",
        shows_chain=True,
        by_size=MAINNET.max_block_bytes,
        path_fields=(HEIGHT,),
        answers={200: object_schema({"block": BLOCK})},
        errors={404: "The chain has no block at this height.", 410: "This node has only later blocks."},
        error_members=PRUNED,
    )
    def block(self, height: int) -> Renderable | Coroutine[Any, Any, Renderable]:
        """Answer GET /rpc/block/{height}."""

        def read(reader: ChainReader) -> tuple[StoredBlock, list[bytes]] | None:
            stored = reader.canonical(height)
            return None if stored is None else (stored, reader.some_bodies(stored, first=0, limit=_FEW + 1))

        found, tip = self._chain_manager.read(read)
        if found is None:
            raise _no_block(height, tip)
        stored, bodies = found
        if len(bodies) > _FEW:
            return self._long_block(height)
        return Response(block_answer(stored, bodies, tip.height), tip=tip_at(tip))

    async def _long_block(self, height: int) -> Renderable:
        """Read a large block in a thread: the reactor would be blocked for too long."""

        def read(reader: ChainReader) -> Response:
            stored, tip = reader.canonical(height), reader.existing_tip()
            if stored is None:
                raise _no_block(height, tip)
            return Response(block_answer(stored, reader.bodies(stored), tip.height), tip=tip_at(tip))

        return await self._chain_manager.long_reads.ask(read)

    @Route(
        "GET",
        "/rpc/balance/{address}",
        "The account of an address; zeros for an unused one",
        bucket="read",
        shows_chain=True,
        path_fields=(ADDRESS,),
        answers={200: object_schema({"account": schemas.ACCOUNT})},
    )
    def balance(self, address: str) -> Renderable:
        """Answer GET /rpc/balance/{address}."""
        key = decode_address(address, self._params.address_prefix)
        found, tip = self._chain_manager.read(lambda reader: reader.account(key))
        account, mempool = found or Account(), self._transaction_pool.mempool
        nonce, balance = mempool.pending_nonce(key, account), mempool.pending_balance(key, account)
        body = account_answer(address, account, pending_nonce=nonce, pending_balance=balance)
        return Response(body, tip=tip_at(tip))

    @Route(
        "GET",
        "/rpc/address/{address}/transactions",
        "The newest confirmed transfers from or to an address",
        bucket="read",
        shows_chain=True,
        cost=2,
        path_fields=(ADDRESS,),
        query_fields=(LIMIT, BEFORE),
        answers={200: schemas.HISTORY},
        errors={410: "This node has only later blocks than those before which to list."},
        error_members=PRUNED,
    )
    def address_transactions(self, address: str, limit: int, before: tuple[int, int] | None) -> Renderable:
        """Answer GET /rpc/address/{address}/transactions."""
        key = decode_address(address, self._params.address_prefix)

        def read(reader: ChainReader) -> tuple[list[PlacedTransfer], int]:
            places = reader.address_transactions(key, before=before or NEWEST, limit=limit + 1)
            return places, reader.prune_height()

        (found, prune_height), tip = self._chain_manager.read(read)
        if before is not None and before <= (prune_height, 0) and prune_height:
            raise Pruned(prune_height, f"transfers before block {before[0]}", "ask for those")
        page = found[:limit]
        more = f"{page[-1].height}-{page[-1].position}" if len(found) > limit else None
        records = b",".join([transaction_record(self._params, stored, tip.height) for stored in page])
        after = b"null" if more is None else f'"{more}"'.encode("ascii")
        head = f'{{"ok":true,"address":"{address}","transactions":['.encode("ascii")
        known = f',"pruneHeight":"{prune_height}"}}'.encode("ascii")
        return Response(head + records + b'],"next":' + after + known, tip=tip_at(tip))

    @Route(
        "GET",
        "/rpc/transaction/{txid}",
        "A confirmed canonical transfer",
        bucket="read",
        shows_chain=True,
        path_fields=(TXID,),
        answers={200: object_schema({"transaction": schemas.RECORD})},
        errors={404: "No canonical block contains this transfer; `mempool` says whether it is pending."},
        error_members={404: {"mempool": _IN_MEMPOOL, "pruneHeight": PRUNE_HEIGHT}},
    )
    def transaction(self, txid: bytes) -> Renderable:
        """Answer GET /rpc/transaction/{txid}."""
        stored, tip = self._chain_manager.read(lambda reader: reader.transaction(txid, self._params))
        if stored is None:
            waits, prune_height = txid in self._transaction_pool.mempool, self._chain_manager.reader.prune_height()
            there = f" from height {prune_height} on, the first that this node has," if prune_height else ""
            rest = "but waits in the mempool" if waits else "and not in the mempool"
            sentence = f"transaction {txid.hex()} is in no block{there} {rest}"
            members = {"mempool": waits, "pruneHeight": str(prune_height)}
            raise HttpError(404, sentence, members=members, tip=tip_at(tip))
        record = transaction_record(self._params, stored, tip.height)
        return Response(b'{"ok":true,"transaction":' + record + b"}", tip=tip_at(tip))

    @Route(
        "POST",
        "/rpc/broadcast",
        "Submit a signed transfer",
        bucket="broadcast",
        body_fields=(TRANSACTION,),
        with_charge=True,
        surcharges=(LOOKUP,),
        answers={200: RECEIPT},
        errors={400: "The transfer breaks a rule of the network or of this node's mempool; the sentence says which."},
    )
    async def broadcast(self, transaction: object, charge: Callable[[float], None]) -> Renderable:
        """Answer POST /rpc/broadcast."""
        transfer = parse_transfer(transaction, self._params)
        state = await self._transaction_pool.submit(transfer, on_lookup=partial(charge, LOOKUP.tokens))
        return {"txid": transfer.txid.hex(), "state": state.value}
