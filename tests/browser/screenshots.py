"""Makes the pictures in docs/screenshots from a devnet: `.venv/bin/python -m tests.browser.screenshots [FOLDER]`."""

import hashlib
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from attrs import frozen
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.chain import COIN, FAUCET, SHOP, Account, Chain, checkout_path, payment_uri
from tests.browser.conftest import ARGUMENTS
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched
from tests.process_level.conftest import Nodes

FOLDER: Final = Path(__file__).parents[2] / "docs" / "screenshots"
COLOURS: Final = 128
ORDER: Final = "order-1042"
LABEL: Final = "&label=Tea%20%26%20cake"


@frozen
class Look:
    """A screen, and the colours that its owner likes."""

    name: str
    width: int
    height: int
    scheme: str


LOOKS: Final = [
    Look(f"{screen}-{scheme}", width, height, scheme)
    for screen, width, height in (("desktop", 1000, 940), ("phone", 360, 1040))
    for scheme in ("light", "dark")
]


def account(name: str) -> Account:
    """The same key at each run."""
    return Account(hashlib.sha256(name.encode()).digest())


def live(chain: Chain, buyer: Account) -> None:
    """Some days in the life of a chain."""
    chain.node.mine(40)
    chain.fund(buyer.address, "81.5")
    for number in range(12):
        chain.pay(FAUCET, SHOP, (number + 1) * 61_728_394, f"order-{1000 + number}")
        chain.node.mine(3)
    chain.pay(FAUCET, buyer.address, 12 * COIN + 34_000_000, "salary:2026-11")
    chain.node.mine(24)
    chain.pay(buyer, SHOP, 3 * COIN, "order-1041")
    chain.node.mine(1)
    chain.pay(buyer, SHOP, 75_000_000)


def review(watched: Watched, folder: Path, buyer: Account) -> Page:
    """The wallet, before anything is signed."""
    wallet = WalletPage.opened(watched)
    wallet.bring(buyer.keyfile(folder))
    wallet.view("home")
    wallet.follow(payment_uri(ORDER, rest=f"&confirmations=3{LABEL}"))
    wallet.may_sign()
    return wallet.page


def pages(watched: Watched, folder: Path, buyer: Account) -> Iterator[tuple[str, Page]]:
    """What pictures are made of."""
    yield "wallet-review", review(watched, folder, buyer)
    yield "checkout", watched.go(checkout_path(ORDER, rest=LABEL))
    yield "explorer", watched.go("/")


def take(page: Page, look: Look, path: Path) -> None:
    """A picture of a page down to where the look ends, with few colours, so that it is small."""
    height = min(look.height, int(page.evaluate("document.documentElement.scrollHeight")))
    page.set_viewport_size({"width": look.width, "height": height})
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


@contextmanager
def looking(browser: Browser, url: str, look: Look) -> Iterator[Watched]:
    """A browser with that screen."""
    context = browser.new_context(
        viewport={"width": look.width, "height": 560},
        color_scheme=look.scheme,  # type: ignore[arg-type]
        device_scale_factor=2 if look.width < 600 else 1,
        reduced_motion="reduce",
        locale="en-GB",
    )
    watched = Watched(context, url)
    yield watched
    watched.close()


def main(folder: Path) -> None:
    """Make all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium")
    if program is None:
        sys.exit("chromium is not installed")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        nodes = Nodes(Path(scratch))
        browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        try:
            chain, buyer = Chain(nodes.start()), account("a buyer in a picture")
            live(chain, buyer)
            for look in LOOKS:
                with looking(browser, chain.node.url, look) as watched:
                    for name, page in pages(watched, Path(scratch), buyer):
                        take(page, look, folder / f"{name}-{look.name}.png")
        finally:
            browser.close()
            nodes.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
