"""The public routes to the mempool: an address's waiting transfers, and the fee a transfer needs (docs/http.md)."""

import json

from twisted.internet.defer import DeferredLock

from svcd.chain.address import decode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.transition import ChainPoint
from svcd.chain.units import format_amount
from svcd.node.chain_manager import ChainManager
from svcd.node.fee_estimator import (
    LARGEST_TRANSFER,
    RECENT_BLOCKS,
    RecentFees,
    mempool_floor,
    recent_fees,
    suggested_fee,
)
from svcd.node.mempool import Mempool, MempoolEntry
from svcd.node.recipient_index import RecipientIndex
from svcd.rpc import schemas
from svcd.rpc.chain_routes import ShowsChain, tip_at
from svcd.rpc.fields import ADDRESS, BEFORE_ARRIVAL, LIMIT
from svcd.web.responses import Renderable, Response, json_body
from svcd.web.routes import Route, object_schema


def waiting_record(entry: MempoolEntry) -> bytes:
    """A waiting transfer as JSON: its canonical form and its txid."""
    transfer = entry.transfer
    extra = (
        f',"txid":"{transfer.txid.hex()}","amountSvc":"{format_amount(transfer.amount)}",'
        f'"feeSvc":"{format_amount(transfer.fee)}"}}'
    )
    return transfer.wire[:-1] + extra.encode("ascii")


class MempoolRoutes(ShowsChain):
    """Reads of the mempool; ``incoming`` follows the same mempool."""

    def __init__(self, chain_manager: ChainManager, mempool: Mempool, incoming: RecipientIndex) -> None:
        self._chain_manager = chain_manager
        self._params = chain_manager.params
        self._mempool, self._incoming = mempool, incoming
        self._recent: tuple[bytes, RecentFees, ChainPoint] | None = None
        """The announced tip when the fees were last read, the fees, and the tip of the snapshot that was read."""
        self._reading = DeferredLock()

    @Route(
        "GET",
        "/rpc/mempool/{address}",
        "The transfers from or to an address in the mempool",
        bucket="read",
        shows_chain=True,
        cost=2,
        path_fields=(ADDRESS,),
        query_fields=(LIMIT, BEFORE_ARRIVAL),
        answers={200: schemas.WAITING},
    )
    def waiting(self, address: str, limit: int, before: int | None) -> Renderable:
        """Answer GET /rpc/mempool/{address}."""
        key = decode_address(address, self._params.address_prefix)
        last = MAX_INTEGER if before is None else before
        found = {each.sequence: each for each in self._incoming.newest(key, limit=limit + 1, before=last)}
        found |= {each.sequence: each for each in self._mempool.sent_by(key) if each.sequence < last}
        numbers = sorted(found, reverse=True)
        page = numbers[:limit]
        more = json.dumps(str(page[-1]) if len(numbers) > limit else None)
        head = f'{{"ok":true,"address":"{address}","transactions":['
        records = b",".join([waiting_record(found[number]) for number in page])
        body = head.encode("ascii") + records + f'],"next":{more}}}'.encode("ascii")
        return Response(body, tip=self.tip)

    @Route(
        "GET",
        "/rpc/fees",
        "The fee that a transfer needs now: the fees in the newest blocks, and the floor of the mempool",
        bucket="read",
        shows_chain=True,
        cost=2,
        answers={200: object_schema({"fees": schemas.FEES})},
    )
    async def fees(self) -> Renderable:
        """Answer GET /rpc/fees."""
        recent, tip = await self._recent_fees()
        answer = {
            "fees": {
                "minimumFee": str(self._params.minimum_fee),
                "suggestedFee": str(suggested_fee(self._mempool, self._params, recent)),
                "transferBytes": LARGEST_TRANSFER,
                "mempool": {
                    "transactions": len(self._mempool),
                    "bytes": self._mempool.size,
                    "floor": _text(mempool_floor(self._mempool, self._params)),
                },
                "recent": {
                    "blocks": min(RECENT_BLOCKS, tip.height),
                    "transactions": recent.transactions,
                    "lowest": _text(recent.lowest),
                    "median": _text(recent.median),
                    "highest": _text(recent.highest),
                },
            }
        }
        return Response(json_body(answer), tip=tip_at(tip))

    async def _recent_fees(self) -> tuple[RecentFees, ChainPoint]:
        """The fees in the newest blocks, read once for each tip, and the tip of the commit that was read."""
        async with self._reading:
            announced = self._chain_manager.tip
            if self._recent is None or self._recent[0] != announced.hash:
                fees, tip = await self._chain_manager.long_reads.ask(
                    lambda reader: (reader.newest_fees(RECENT_BLOCKS), reader.existing_tip())
                )
                self._recent = announced.hash, recent_fees(fees), tip
            return self._recent[1:]


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
