"""The public route for bookkeeping: every change of an account's balance (docs/http.md)."""

from typing import Final

from attrs import frozen

from svcd.chain.address import decode_address
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.transition import ChainPoint
from svcd.chain.units import format_amount
from svcd.chain_schemas import PRUNED, TIME
from svcd.commerce.statement import BEGINNING, Entry, StatementPage, StatementQuery, read_statement
from svcd.node.chain_manager import ChainManager
from svcd.rpc import schemas
from svcd.rpc.chain_routes import ShowsChain, confirmations, tip_at
from svcd.rpc.fields import ADDRESS, whole_number
from svcd.store.chain_store import ChainReader
from svcd.web.field_types import Int, Text
from svcd.web.responses import HttpError, Renderable, Response, json_body
from svcd.web.routes import Field, Route

MAX_ENTRIES: Final = 500
_HASH_DIGITS: Final = 16
_REPLACED: Final = "a reorganisation has replaced blocks of the pages before; begin again without after"


@frozen
class StatementCursor:
    """Where a page begins: height and index; and the first digits of the hash of the last block before that."""

    begin: tuple[int, int]
    block: str

    @property
    def text(self) -> str:
        """The cursor in the API's form."""
        return f"{self.begin[0]}-{self.begin[1]}-{self.block}"


def _parse_cursor(text: str) -> StatementCursor:
    height, index, block = text.split("-")
    return StatementCursor((int(height), int(index)), block)


FROM: Final = whole_number("from", "Entries from this time on, in Unix milliseconds.", TIME)
TO: Final = whole_number("to", "Entries before this time, in Unix milliseconds.", TIME)
LIMIT: Final = Field("limit", Int(1, MAX_ENTRIES), "How many entries to return at most.", default=100)
AFTER: Final = Field(
    "after",
    Text(
        "(0|[1-9][0-9]{0,15})-(0|[1-9][0-9]{0,15})-[0-9a-f]{16}",
        "must be the `next` of the page before",
        _parse_cursor,
        {"examples": ["120-3-0123456789abcdef"]},
    ),
    "The `next` of the previous page.",
    default=None,
)


class StatementRoutes(ShowsChain):
    """Statements of accounts, in the thread for long reads."""

    def __init__(self, chain_manager: ChainManager) -> None:
        self._chain_manager = chain_manager
        self._params = chain_manager.params

    @Route(
        "GET",
        "/rpc/address/{address}/statement",
        "Every change of the balance of an address, oldest first, for bookkeeping",
        bucket="read",
        shows_chain=True,
        cost=10,
        path_fields=(ADDRESS,),
        query_fields=(FROM, TO, LIMIT, AFTER),
        answers={200: schemas.STATEMENT},
        errors={
            409: "A reorganisation has replaced blocks of earlier pages: begin with the first page again.",
            410: "This node has only later blocks than those of the statement.",
        },
        error_members=PRUNED,
    )
    async def statement(
        self, address: str, *, from_: int | None, to: int | None, limit: int, after: StatementCursor | None
    ) -> Renderable:
        """Answer GET /rpc/address/{address}/statement."""
        query = StatementQuery(
            key=decode_address(address, self._params.address_prefix),
            start=0 if from_ is None else from_,
            end=MAX_INTEGER if to is None else to,
            begin=BEGINNING if after is None else after.begin,
            limit=limit,
        )

        def read(reader: ChainReader) -> tuple[StatementPage, str | None]:
            if after is not None and _cursor(reader, after.begin) != after:
                raise HttpError(409, _REPLACED, tip=tip_at(reader.existing_tip()))
            page = read_statement(reader, self._params, query)
            following = None if page.next is None else _cursor(reader, page.next)
            return page, None if following is None else following.text

        page, following = await self._chain_manager.long_reads.ask(read)
        answer = {
            "address": address,
            "balance": str(page.balance),
            "entries": [_entry_record(entry, page.tip) for entry in page.entries],
            "next": following,
            "tip": {"height": str(page.tip.height), "hash": page.tip.hash.hex()},
        }
        return Response(json_body(answer), tip=tip_at(page.tip))


def _cursor(reader: ChainReader, begin: tuple[int, int]) -> StatementCursor | None:
    """The cursor of a page that begins at this position; None above the tip."""
    height, index = begin
    block = reader.canonical(height if index else max(height - 1, 0))
    return None if block is None else StatementCursor(begin, block.point.hash.hex()[:_HASH_DIGITS])


def _entry_record(entry: Entry, tip: ChainPoint) -> dict[str, object]:
    return {
        "type": entry.type,
        "time": str(entry.time),
        "height": str(entry.height),
        "index": entry.index,
        "txid": None if entry.txid is None else entry.txid.hex(),
        "counterparty": entry.counterparty,
        "reference": entry.reference,
        "amount": str(entry.amount),
        "amountSvc": format_amount(entry.amount),
        "fee": str(entry.fee),
        "feeSvc": format_amount(entry.fee),
        "confirmations": confirmations(tip.height, entry.height),
    }
