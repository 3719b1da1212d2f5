"""The page of the wallet in the browser: a file, with the warnings about the node put in (docs/wallet-page.md)."""

from svcd.pages.assets import Assets
from svcd.pages.headers import HTML
from svcd.pages.layout import Layout
from svcd.pages.routes import page
from svcd.web.answers import Rendered


class WalletPage:
    """What a payment request's ``walletPath`` leads to; what it pays stays between the address and the scripts."""

    def __init__(self, layout: Layout, assets: Assets) -> None:
        self._layout = layout
        self._assets = assets

    @page("/wallet/", "The wallet", cost=1)
    def wallet(self) -> Rendered:
        """Answer GET /wallet/."""
        return Rendered(self._layout.warned(self._assets.page("wallet.html")), content_type=HTML)
