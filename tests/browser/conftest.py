"""Chromium on a devnet of its own. Without Chromium these tests are skipped; with SVCD_REQUIRE_ALL=1 they fail."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser.between import Between, between
from tests.browser.chain import Account, Chain
from tests.browser.engines import CHROMIUM, ChromiumTab, Tab, firefox, webkit
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import RunningNode
from tests.programs import needs, program

OTHER_NAME = "node.example"
"""A name of the node in the eyes of the browser, which is not that of the computer itself."""
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-sync",
    "--no-first-run",
    "--use-fake-device-for-media-stream",
    f"--host-resolver-rules=MAP {OTHER_NAME} 127.0.0.1, MAP evil.example 127.0.0.1",
]

# What is kept for the whole folder ends with it: Playwright's loop must not run beside the tests of other folders.


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    chromium = program("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS, timeout=180_000)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A devnet with a few blocks."""
    nodes = Nodes(tmp_path_factory.mktemp("browser"))
    hosts = f'--set=http.allowedHosts=["127.0.0.1","localhost","{OTHER_NAME}"]'
    node = nodes.start(*DEVNET, hosts)
    node.mine(3)
    yield node
    nodes.stop()


@pytest.fixture(scope="package")
def chain(node: RunningNode) -> Chain:
    """The chain of the node."""
    return Chain(node)


Watch = Callable[..., Watched]


@pytest.fixture
def watch(browser: Browser, node: RunningNode) -> Iterator[Watch]:
    """``watch()``: a browser of somebody who was never here, watched until the end of the test."""
    made: list[Watched] = []

    def make(*, origin: str = node.url, **options: Any) -> Watched:
        options = {"reduced_motion": "reduce", "viewport": {"width": 1280, "height": 900}} | options
        made.append(Watched(browser.new_context(**options), origin))
        return made[-1]

    yield make
    for watched in made:
        watched.close()


@pytest.fixture
def watched(watch: Watch) -> Watched:
    """A browser of somebody who was never here."""
    return watch()


@pytest.fixture
def account(chain: Chain) -> Account:
    """A key with 100 coins."""
    account = Account.random()
    chain.fund(account.address)
    return account


@pytest.fixture
def wallet(watched: Watched, account: Account, tmp_path: Path) -> WalletPage:
    """A browser with the wallet of that account, which is open."""
    wallet = WalletPage.opened(watched)
    wallet.bring(account.keyfile(tmp_path))
    wallet.view("home")
    return wallet


@pytest.fixture(scope="module")
def liar(node: RunningNode) -> Iterator[Between]:
    """A server that passes itself off as the node."""
    with between(node) as server:
        yield server


OTHERS = {"firefox": firefox, "webkit": webkit}


@pytest.fixture(
    params=[
        CHROMIUM,
        pytest.param("firefox", marks=needs("firefox-esr")),
        pytest.param("webkit", marks=needs("WebKitWebDriver", "Xvfb")),
    ]
)
def tab(request: pytest.FixtureRequest, node: RunningNode, liar: Between, tmp_path: Path) -> Iterator[Tab]:
    """A tab in each engine, in which nothing may go wrong unseen."""
    if request.param == "chromium":
        watched: Watched = request.getfixturevalue("watched")
        watched.others.add(liar.url)
        watched.forgiven.append("status of 400")
        tab: Tab = ChromiumTab(watched.page(), node.url)
        tab.forgiven = watched.forgiven
        # It is watched to the end of the test.
        yield tab
        return
    with OTHERS[request.param](tmp_path, node.url) as tab:
        yield tab
        assert [each for each in tab.complaints() if not any(re.search(one, each) for one in tab.forgiven)] == []
