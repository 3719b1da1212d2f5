"""The page of the browser wallet: a static file with this node's warnings inserted (docs/wallet-page.md)."""

from svcd.pages.headers import HTML
from svcd.pages.layout import Layout
from svcd.pages.routes import page
from svcd.pages.static_files import StaticFiles
from svcd.web.responses import Response


class WalletPage:
    """The target of a payment request's ``walletPath``; only the scripts read the payment from the address."""

    def __init__(self, layout: Layout, files: StaticFiles) -> None:
        self._layout = layout
        self._files = files

    @page("/wallet/", "The wallet", cost=1)
    def wallet(self) -> Response:
        """Answer GET /wallet/."""
        return Response(self._layout.insert_warnings(self._files.page("wallet.html")), content_type=HTML)
