"""The public routes to the mempool: an address's waiting transfers, and the fee a transfer needs (docs/http.md)."""

import json

from svcd.chain.address import decode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.units import format_amount
from svcd.node.chain_manager import ChainManager
from svcd.node.fee_rates import LARGEST_TRANSFER
from svcd.node.fees import Fees
from svcd.node.mempool import Mempool, MempoolEntry
from svcd.node.recipient_index import RecipientIndex
from svcd.rpc import schemas
from svcd.rpc.chain_routes import ShowsChain
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
    """Reads of the mempool; ``incoming`` follows the same mempool, and ``fees`` are those that it asks for."""

    def __init__(self, chain_manager: ChainManager, mempool: Mempool, incoming: RecipientIndex, fees: Fees) -> None:
        self._chain_manager = chain_manager
        self._params = chain_manager.params
        self._mempool, self._incoming = mempool, incoming
        self._fees = fees

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
        "The fee that a transfer needs now, by what waits in the mempool",
        bucket="read",
        shows_chain=True,
        cost=2,
        answers={200: object_schema({"fees": schemas.FEES})},
    )
    def fees(self) -> Renderable:
        """Answer GET /rpc/fees."""
        floor = self._fees.floor()
        answer = {
            "fees": {
                "minimumFee": str(self._params.minimum_fee),
                "suggestedFee": str(self._fees.suggested()),
                "transferBytes": LARGEST_TRANSFER,
                "mempool": {
                    "transactions": len(self._mempool),
                    "bytes": self._mempool.size,
                    "floor": None if floor is None else str(floor),
                },
            }
        }
        return Response(json_body(answer), tip=self.tip)
