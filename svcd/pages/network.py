"""What has not become part of the chain yet, and who else there is (docs/pages.md "Explorer")."""

from typing import Final

from svcd.chain.units import format_amount
from svcd.pages.fields import AFTER
from svcd.pages.layout import Page
from svcd.pages.parts import UNIT, Column, Content, empty, figure, figures, listing, paging, plural, tag, when
from svcd.pages.reading import TransferLine
from svcd.pages.routes import page
from svcd.pages.sources import PeerLine, Sources
from svcd.pages.tables import transfers_table
from svcd.pages.visible import visible

PAGE: Final = 20


class MempoolPage:
    """The transfers that wait for a block."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/mempool", "The transfers that wait", query_fields=(AFTER,))
    def mempool(self, after: int) -> Page:
        """Answer GET /mempool."""
        pool = self._sources.mempool
        found = pool.since(after, PAGE + 1)
        shown = found[:PAGE]
        lines = [TransferLine(entry.transfer) for entry in shown]
        if lines:
            table = transfers_table(self._sources, lines, caption="Waiting transfers", dated=False)
            listed: Content = tag("div", table, class_="card")
        else:
            listed = empty("No transfer waits." if not after else "There are no more transfers.")
        ways: list[Content] = []
        if after:
            ways.append(tag("a", "← From the beginning", href="/mempool", class_="button"))
        if len(found) > PAGE:
            ways.append(tag("a", "More →", href=f"/mempool?after={shown[-1].sequence}", class_="button"))
        numbers = figures(
            figure("Waiting", str(len(pool)), "In order of arrival here"),
            figure("Size", size(pool.size)),
            figure("Least fee", format_amount(self._sources.params.minimum_fee), UNIT),
        )
        return Page(
            title="Mempool",
            content=(
                tag("h1", "Mempool"),
                numbers,
                listed,
                *([paging(*ways)] if ways else []),
            ),
            here="/mempool",
            json=f"/p2p/transactions?after={after}" if self._sources.serves_peers else "",
        )


class PeersPage:
    """The other nodes that this one has called and verified."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    @page("/peers", "Verified peers")
    def peers(self) -> Page:
        """Answer GET /peers."""
        sources = self._sources
        now, around = sources.now, sources.peers.neighbourhood()
        sample = sorted(sources.sample(), key=lambda peer: peer.endpoint)
        columns: list[Column[PeerLine]] = [
            Column("Address", lambda peer: tag("bdi", visible(peer.endpoint), class_="hash")),
            Column("Node", lambda peer: tag("bdi", visible(peer.node_id), class_="hash small")),
            Column("Height", lambda peer: str(peer.height), number=True),
            Column("Last seen", lambda peer: when(peer.last_seen, now)),
        ]
        if sample:
            listed: Content = tag("div", listing(columns, sample, caption="Verified peers"), class_="card")
        else:
            listed = empty("This node has met no other node that it could verify.")
        connected = plural(around.known_peers, "verified peer")
        lead = tag(
            "p", f"In touch with {connected}. Listed are nodes that answered when this one called.", class_="lead"
        )
        return Page(
            title="Peers",
            content=(tag("h1", "Peers"), lead, listed),
            here="/peers",
            json="/p2p/peers" if sources.serves_peers else "",
        )


def size(count: int) -> str:
    """A number of bytes as people read it."""
    if count < 10_000:
        return f"{count} bytes"
    return f"{count // 1_000} kB" if count < 10_000_000 else f"{count // 1_000_000} MB"
