"""The public route of the feed: every payment to an address, in order (docs/payments.md "One address, one feed")."""

from collections.abc import Callable, Coroutine
from functools import partial
from itertools import islice
from typing import Any, Final

from attrs import evolve, frozen

from svcd.chain.address import decode_address
from svcd.chain.transition import ChainPoint
from svcd.chain_schemas import PRUNED
from svcd.commerce.feed import (
    LEAST_ROWS,
    MAX_PENDING,
    NOTHING,
    ROWS_PER_ENTRY,
    FeedCursor,
    FeedPage,
    FeedQuery,
    FeedReader,
    begin_of,
    parse_cursor,
)
from svcd.commerce.payment import ChainTip, tip_json
from svcd.commerce.payment_lookup import PaymentLookup
from svcd.commerce.payment_waiters import MAX_SECONDS, PaymentWaiters, TooManyWaiting
from svcd.limits import LONG_LISTS, limit
from svcd.node.chain_manager import ChainManager
from svcd.node.mempool import MempoolEntry
from svcd.node.recipient_index import RecipientIndex
from svcd.rpc import fields, schemas
from svcd.rpc.chain_routes import ShowsChain, tip_at
from svcd.rpc.payment_routes import RETRY_SECONDS
from svcd.store.chain_store import ChainReader
from svcd.web.rate_limits import Surcharge
from svcd.web.responses import Cached, Renderable, Response, too_many_requests
from svcd.web.routes import Route, object_schema

_NEAR: Final = 16
"""A feed that ends so many blocks below the tip, or fewer, is read in the reactor's thread: its pages are in memory."""
_FEW: Final = 64
"""So many transfers are read there, in a millisecond."""
ENTRIES_PER_TOKEN: Final = limit(250, "entries of a feed that cost as much as a request", "entries", LONG_LISTS)
"""Those asked for, if a thread reads them, and waiting transfers, of which so many are listed in a millisecond."""


@frozen
class _Asked:
    """What a reader asks for; ``since`` is 0 if it gives none."""

    key: bytes
    after: FeedCursor | None
    since: int
    limit: int

    @property
    def query(self) -> FeedQuery:
        """The part that the chain answers."""
        after = None if self.after is None else self.after.place
        return FeedQuery(key=self.key, after=after, since=self.since, limit=self.limit)


@frozen
class _Told:
    """A page, and the waiting transfers beside it as JSON."""

    page: FeedPage
    pending: str
    next: FeedCursor
    waiting: int = 0
    """How many there are."""


class FeedRoutes(ShowsChain):
    """Feeds of addresses, on the chain and in the mempool that ``incoming`` follows; nothing is kept for a reader."""

    def __init__(
        self, chain_manager: ChainManager, payments: PaymentLookup, waiters: PaymentWaiters, incoming: RecipientIndex
    ) -> None:
        self._chain_manager = chain_manager
        self._params = chain_manager.params
        self._payments, self._waiters, self._incoming = payments, waiters, incoming
        self._pages = FeedReader(self._params)
        self._nothing_new: tuple[ChainPoint, bool, FeedCursor, Response] | None = None
        """The answer to who knows the tip, and the tip, whether the node was in sync, and the cursor of who does."""
        self._listed: Cached[tuple[str, bytes]] = Cached()
        """The waiting transfers that were listed last: all feeds of an address that wait are woken by the same ones."""

    @Route(
        "GET",
        "/rpc/commerce/feed/{recipient}",
        "Every payment to an address in the order of the chain, those that are undone too; with wait, as they come",
        bucket="read",
        shows_chain=True,
        path_fields=(fields.RECIPIENT,),
        query_fields=(fields.FEED_AFTER, fields.FEED_WAIT, fields.FEED_LIMIT, fields.FEED_SINCE),
        answers={200: object_schema({"feed": schemas.FEED})},
        errors={410: "This node has only later blocks than those from which on the feed goes on."},
        error_members=PRUNED,
        with_client=True,
        with_charge=True,
        surcharges=(
            Surcharge(1, f"for each {ENTRIES_PER_TOKEN} of `limit` where there is much to read"),
            Surcharge(1, f"for each {ENTRIES_PER_TOKEN} of `pending`"),
        ),
        seconds=MAX_SECONDS + 5,
    )
    def feed(
        self,
        recipient: object,
        *,
        after: FeedCursor | None,
        wait: int | None,
        limit: int,
        since_height: int | None,
        client: str | None,
        charge: Callable[[float], None],
    ) -> Renderable | Coroutine[Any, Any, Renderable]:
        """Answer GET /rpc/commerce/feed/{recipient}."""
        key = decode_address(recipient, self._params.address_prefix, "recipient")
        if wait is None and after is not None and (unchanged := self._unchanged(key, after)) is not None:
            return unchanged
        asked = _Asked(key, after, since_height or 0, limit)
        found = self._read_near(asked)
        if wait is not None and not (found is not None and _is_news(asked, found)):
            return self._changed(asked, found, wait, client, charge)
        return self._read_long(asked, charge) if found is None else self._charged(found, charge)

    def _unchanged(self, key: bytes, after: FeedCursor) -> Response | None:
        """The answer to most polls, which is the same for all: the reader knows the tip, and nothing waits for it."""
        tip, synced, kept = self._chain_manager.tip, self._payments.synced(), self._nothing_new
        if kept is None or kept[0] is not tip or kept[1] is not synced:
            place = self._pages.place_of_tip(tip.hash)
            if place is None:
                return None
            # Read as a request's is: then those of all readers are the same object, which is compared at once.
            end = parse_cursor(str(FeedCursor(place, NOTHING)))
            told = _Told(FeedPage.without_news(tip, place), "", end)
            kept = self._nothing_new = tip, synced, end, self._answer(told)
        return kept[3] if after == kept[2] and key not in self._incoming else None

    async def _read_long(self, asked: _Asked, charge: Callable[[float], None]) -> Renderable:
        return self._charged(await self._read_far(asked, charge), charge)

    async def _changed(
        self, asked: _Asked, found: _Told | None, wait: int, client: str | None, charge: Callable[[float], None]
    ) -> Renderable:
        """What there is to tell as soon as there is something, at the latest after ``wait`` seconds.

        ``found`` is what there is now, and no news; None if a thread has to read it.
        """
        news = None
        if found is None:
            found = await self._read_far(asked, charge)
            if _is_news(asked, found):
                return self._charged(found, charge)
            # Something may have come while the thread was reading.
            asked = evolve(asked, after=found.next)
            news = self._news(asked)
        if news is None:
            try:
                news = await self._waiters.until(asked.key, partial(self._news, asked), seconds=wait, client=client)
            except TooManyWaiting as many:
                raise too_many_requests(RETRY_SECONDS, str(many)) from many
        told = self._read_near(asked) if news is None else news.found
        return await self._read_long(asked, charge) if told is None else self._charged(told, charge)

    def _news(self, asked: _Asked) -> "_News | None":
        found = self._read_near(asked)
        return _News(found) if found is None or _is_news(asked, found) else None

    def _read_near(self, asked: _Asked) -> _Told | None:
        """What there is to tell, if a few transfers near the tip have to be read for it; None if more have."""
        waiting, tip = self._waiting(asked.key), self._chain_manager.tip
        place = self._pages.place_of_tip(tip.hash)
        if place is not None and asked.after is not None and asked.after.place == place:
            return self._with_waiting(FeedPage.without_news(tip, place), waiting)
        query, lowest = asked.query, tip.height - _NEAR
        if (query.since if query.after is None else max(query.since, query.after.height)) < lowest:
            return None

        def read(reader: ChainReader) -> FeedPage | None:
            begin = begin_of(reader, query)
            # Of a forged cursor it is anywhere.
            return None if begin.first < lowest else self._pages.read(reader, query, rows=_FEW, begin=begin)

        page, _ = self._chain_manager.read(read)
        return None if page is None or not (page.reaches_tip or page.is_full) else self._with_waiting(page, waiting)

    async def _read_far(self, asked: _Asked, charge: Callable[[float], None]) -> _Told:
        """The same by a thread, whatever there is to read."""
        # Before the read: to hang up meanwhile must not be cheaper.
        charge(asked.limit / ENTRIES_PER_TOKEN)
        waiting, rows = self._waiting(asked.key), max(asked.limit * ROWS_PER_ENTRY, LEAST_ROWS)

        def read(reader: ChainReader) -> FeedPage:
            return self._pages.read(reader, asked.query, rows=rows)

        return self._with_waiting(await self._chain_manager.long_reads.ask(read), waiting)

    def _waiting(self, key: bytes) -> list[MempoolEntry]:
        # Taken before the chain is read: a transfer that a block includes meanwhile is found twice, not never.
        return list(islice(self._incoming.oldest(key), MAX_PENDING))

    def _with_waiting(self, page: FeedPage, waiting: list[MempoolEntry]) -> _Told:
        if not waiting:
            return _Told(page, "", FeedCursor(page.end, NOTHING))
        listed = page.told, [entry.sequence for entry in waiting]
        pending, digest = self._listed.get(listed, lambda: self._pages.waiting_json(waiting, page.told))
        return _Told(page, pending, FeedCursor(page.end, digest), len(waiting))

    def _charged(self, told: _Told, charge: Callable[[float], None]) -> Response:
        if told.waiting >= ENTRIES_PER_TOKEN:
            charge(told.waiting / ENTRIES_PER_TOKEN)
        return self._answer(told)

    def _answer(self, found: _Told) -> Response:
        tip = found.page.tip
        told = tip_json(ChainTip(tip.height, tip.hash), self._payments.synced())
        body = (
            f'{{"ok":true,"feed":{{"entries":[{found.page.entries}],"pending":[{found.pending}],'
            f'"next":"{found.next}",{told}}}}}'
        )
        return Response(body.encode("ascii"), tip=tip_at(tip))


@frozen
class _News:
    """What woke a waiting feed; ``found`` is None if a thread has to read it."""

    found: _Told | None


def _is_news(asked: _Asked, found: _Told) -> bool:
    """Whether the reader does not know what is found."""
    known = NOTHING if asked.after is None else asked.after.pending
    return bool(found.page.entries) or not found.page.reaches_tip or found.next.pending != known
