"""The public chain routes (docs/http.md "Bodies")."""

from collections.abc import Coroutine
from typing import Any, Final

from svcd.chain.accounts import Account
from svcd.chain.address import decode_address
from svcd.chain.params import MAINNET
from svcd.chain.transaction import parse_transfer
from svcd.node.ledger import Ledger
from svcd.node.status import Status
from svcd.node.transfers import Transfers
from svcd.ports import Clock, milliseconds
from svcd.rpc import schemas
from svcd.rpc.fields import ADDRESS, BEFORE, HEIGHT, LIMIT, TRANSACTION, TXID
from svcd.rpc.records import account_answer, block_answer, consensus_record, transaction_record
from svcd.store.chain_store import ChainReader, StoredBlock
from svcd.web.answers import Answer, Kept, Rendered, json_body, rendered
from svcd.web.errors import HttpError
from svcd.web.routing import Route, object_schema

_FEW: Final = 64
"""A block of so many transfers is read in a tenth of a millisecond, less than handing it to a thread takes."""


class ChainRoutes:
    """Reads of the canonical chain, and the door for signed transfers."""

    def __init__(self, ledger: Ledger, *, transfers: Transfers, status: Status, clock: Clock) -> None:
        self._ledger = ledger
        self._params = ledger.params
        self._reader = ledger.reader
        self._transfers = transfers
        self._status = status
        self._clock = clock
        self._kept_status: Kept[tuple[bytes, bytes]] = Kept()
        self._kept_consensus: Kept[Rendered] = Kept()

    @Route(
        "GET",
        "/rpc/status",
        "The node and its tip",
        bucket="read",
        answers={200: object_schema({"status": schemas.STATUS})},
    )
    def status(self) -> Answer:
        """Answer GET /rpc/status."""
        before, after = self._kept_status.get(self._status.revision(), self._status_but_the_time)
        return Rendered(b'%b"%d"%b' % (before, milliseconds(self._clock), after))

    def _status_but_the_time(self) -> tuple[bytes, bytes]:
        """The answer in two parts."""
        mark = "the time"
        before, _, after = json_body({"status": {**self._status.node_status(), "time": mark}}).partition(
            f'"{mark}"'.encode("ascii")
        )
        return before, after

    @Route(
        "GET",
        "/rpc/consensus",
        "The rules of the network and what the next block is due",
        bucket="read",
        answers={200: object_schema({"consensus": schemas.CONSENSUS})},
    )
    def consensus(self) -> Answer:
        """Answer GET /rpc/consensus."""
        tip, now = self._ledger.tip, milliseconds(self._clock)

        def render() -> Rendered:
            return rendered({"consensus": consensus_record(self._params, tip, now)})

        return self._kept_consensus.get((tip.hash, self._params.slot_at(now)), render)

    @Route(
        "GET",
        "/rpc/block/{height}",
        "The canonical block at a height",
        bucket="read",
        by_size=MAINNET.max_block_bytes,
        path_fields=(HEIGHT,),
        answers={200: object_schema({"block": schemas.BLOCK})},
        errors={404: "The chain is not that high."},
    )
    def block(self, height: int) -> Answer | Coroutine[Any, Any, Answer]:
        """Answer GET /rpc/block/{height}."""
        with self._reader.snapshot():
            stored, tip_height = self._found(self._reader, height)
            bodies = self._reader.some_bodies(stored, first=0, limit=_FEW + 1)
        if len(bodies) > _FEW:
            return self._long_block(height)
        return Rendered(block_answer(stored, bodies, tip_height))

    async def _long_block(self, height: int) -> Answer:
        """A block that takes longer to read than the reactor has."""

        def read(reader: ChainReader) -> bytes:
            stored, tip_height = self._found(reader, height)
            return block_answer(stored, reader.bodies(stored), tip_height)

        return Rendered(await self._ledger.long_reads.ask(read))

    def _found(self, reader: ChainReader, height: int) -> tuple[StoredBlock, int]:
        """The block, and the height of the tip; within a snapshot."""
        found = reader.canonical_and_height(height)
        if found is None:
            newest = (reader.tip() or self._ledger.tip).height
            raise HttpError(404, f"there is no block {height} yet; the newest is {newest}")
        return found

    @Route(
        "GET",
        "/rpc/balance/{address}",
        "The account of an address; one never seen has zeros",
        bucket="read",
        path_fields=(ADDRESS,),
        answers={200: object_schema({"account": schemas.ACCOUNT})},
    )
    def balance(self, address: str) -> Answer:
        """Answer GET /rpc/balance/{address}."""
        key = decode_address(address, self._params.address_prefix)
        account = self._reader.account(key) or Account()
        pending = self._transfers.mempool.pending_nonce(key, account)
        return Rendered(account_answer(address, account, pending))

    @Route(
        "GET",
        "/rpc/address/{address}/transactions",
        "The newest confirmed transfers from or to an address",
        bucket="read",
        cost=2,
        path_fields=(ADDRESS,),
        query_fields=(LIMIT, BEFORE),
        answers={200: schemas.HISTORY},
    )
    def address_transactions(self, address: str, limit: int, before: tuple[int, int]) -> Answer:
        """Answer GET /rpc/address/{address}/transactions."""
        key = decode_address(address, self._params.address_prefix)
        with self._reader.snapshot():
            tip = self._reader.tip() or self._ledger.tip
            places = self._reader.address_transactions(key, before=before, limit=limit + 1)
        page = places[:limit]
        more = f"{page[-1].point.height}-{page[-1].position}" if len(places) > limit else None
        records = b",".join([transaction_record(self._params, place, tip.height) for place in page])
        after = b"null" if more is None else f'"{more}"'.encode("ascii")
        head = f'{{"ok":true,"address":"{address}","transactions":['.encode("ascii")
        return Rendered(head + records + b'],"next":' + after + b"}")

    @Route(
        "GET",
        "/rpc/transaction/{txid}",
        "A confirmed canonical transfer",
        bucket="read",
        path_fields=(TXID,),
        answers={200: object_schema({"transaction": schemas.RECORD})},
        errors={404: "No canonical block holds this transfer; the sentence says whether it waits for one."},
    )
    def transaction(self, txid: bytes) -> Answer:
        """Answer GET /rpc/transaction/{txid}."""
        found = self._reader.transaction_and_height(txid)
        if found is None:
            waits = "it waits in the mempool" if txid in self._transfers.mempool else "it does not wait for one either"
            raise HttpError(404, f"no block of the chain holds transaction {txid.hex()}; {waits}")
        return Rendered(b'{"ok":true,"transaction":' + transaction_record(self._params, *found) + b"}")

    @Route(
        "POST",
        "/rpc/broadcast",
        "Hand in a signed transfer",
        bucket="broadcast",
        body_fields=(TRANSACTION,),
        answers={200: schemas.RECEIPT},
        errors={400: "The transfer breaks a rule of the network or of this node's mempool; the sentence says which."},
    )
    async def broadcast(self, transaction: object) -> Answer:
        """Answer POST /rpc/broadcast."""
        transfer = parse_transfer(transaction, self._params)
        state = await self._transfers.submit(transfer)
        return {"txid": transfer.txid.hex(), "state": state.value}
