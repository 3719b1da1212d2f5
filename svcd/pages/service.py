"""All pages, joined together."""

from collections.abc import Callable
from typing import Final

from twisted.web.resource import Resource

from svcd.pages.assets import Assets
from svcd.pages.checkout import CheckoutPage
from svcd.pages.explorer import AddressPage, BlockPage, TransactionPage
from svcd.pages.layout import Layout
from svcd.pages.network import MempoolPage, PeersPage
from svcd.pages.overview import OverviewPage
from svcd.pages.qr import QrRoute
from svcd.pages.resource import Hosts, Pages
from svcd.pages.search import SearchPages
from svcd.pages.sources import Sources
from svcd.pages.wallet import WalletPage
from svcd.web.api import Ports

_ROOMS: Final = (
    OverviewPage,
    BlockPage,
    TransactionPage,
    AddressPage,
    MempoolPage,
    PeersPage,
    SearchPages,
    CheckoutPage,
)


def pages(sources: Sources, hosts: Hosts | None) -> Callable[[Ports], Resource]:
    """What makes the resource once the site has its throttle; None for ``hosts`` admits every name."""
    layout, assets = Layout(sources.params, sources.peers), Assets()
    rooms = [*[room(sources) for room in _ROOMS], QrRoute(sources.params), WalletPage(layout, assets)]

    return lambda ports: Pages(rooms, layout=layout, assets=assets, ports=ports, hosts=hosts)
