"""What the pages say on a node that has only later blocks: each names the height from which on it has them."""

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from attrs import define, field

from svcd.store.chain_store import ChainWriter
from svcd.store.database import open_writer
from tests.browser.chain import COIN, SHOP, Account, Chain, checkout_path, fresh, payment_uri
from tests.browser.wallet import WalletPage
from tests.browser.watching import Watched
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.running import RunningNode

pytestmark = [pytest.mark.socket, pytest.mark.slow]


@define
class Pruned:
    """A devnet that loses its earlier blocks; with `keepBlocks` it would take 10,080 others."""

    nodes: Nodes
    node: RunningNode
    account: Account = field(factory=Account.random)
    """One with 100 coins from a block that is gone."""
    first: int = 0
    """The height of the first block that is here."""

    @property
    def chain(self) -> Chain:
        """The chain of the node."""
        return Chain(self.node)

    def keep_from(self, height: int) -> None:
        """Delete the blocks below a height while the node is away."""
        self.node.stop()
        with closing(open_writer(self.node.data_dir / "chain.sqlite")) as connection:
            store = ChainWriter(connection)
            with store.commit():
                store.delete_old_blocks(below=height, at_most=height)
        self.node = self.nodes.start(*DEVNET, port=self.node.port)
        self.first = height

    @property
    def earlier(self) -> str:
        """What the wallet says below a list."""
        return f"This node has only blocks from height {self.first} on; ask another one for earlier transfers."


@pytest.fixture(scope="module")
def pruned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pruned]:
    """A node whose first block is the one at height 6."""
    nodes = Nodes(tmp_path_factory.mktemp("pruned"))
    pruned = Pruned(nodes, nodes.start(*DEVNET))
    pruned.chain.fund(pruned.account.address)
    pruned.node.mine(6)
    pruned.keep_from(6)
    yield pruned
    nodes.stop()


@pytest.fixture
def wallet(pruned: Pruned, watch: Callable[..., Watched], tmp_path: Path) -> WalletPage:
    """A browser with the wallet of the account, which is open."""
    wallet = WalletPage.opened(watch(origin=pruned.node.url))
    wallet.bring(pruned.account.keyfile(tmp_path))
    wallet.view("home")
    return wallet


def test_an_order_that_may_be_paid_in_an_earlier_block_is_paid_by_a_person(pruned: Pruned, wallet: WalletPage) -> None:
    order = fresh("order")
    wallet.follow(payment_uri(order))
    told = wallet.error("pruned")
    assert "may be paid in a block that the node does not have any more" in told
    assert f"only blocks from height {pruned.first} on" in told
    wallet.may_sign()
    wallet.page.click("#sign")
    wallet.state("pending")
    assert len(pruned.chain.paid(pruned.account.address, order)) == 1


def test_the_lists_of_a_wallet_say_where_they_begin(pruned: Pruned, wallet: WalletPage, tmp_path: Path) -> None:
    page = wallet.page
    pruned.chain.paid(pruned.account.address, "all that waits")
    newest = pruned.chain.pay(pruned.account, SHOP, COIN)
    pruned.node.mine(1)
    for view in ("home", "history"):
        page.wait_for_selector(f'#{view}-transfers a[href$="{newest}"]')
        page.wait_for_selector(f"#{view}-first:visible")
        assert wallet.tell(f"#{view}-first") == pruned.earlier
        wallet.navigate("History")
    with page.expect_download() as download:
        page.click("#history-export")
    assert download.value.suggested_filename.endswith(f"-history-from-block-{pruned.first}.csv")
    page.wait_for_selector("#history-live:not(:empty)")
    assert wallet.tell("#history-live").endswith(pruned.earlier)
    download.value.save_as(tmp_path / "history.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "history.csv").read_text("utf-8"))))
    assert rows[-1]["txid"] == newest
    assert all(int(row["height"]) >= pruned.first for row in rows)


def test_a_wallet_without_later_transfers_does_not_say_that_there_were_none(
    pruned: Pruned, watch: Callable[..., Watched], tmp_path: Path
) -> None:
    wallet = WalletPage.opened(watch(origin=pruned.node.url))
    wallet.bring(Account.random().keyfile(tmp_path))
    for view in ("home", "history"):
        wallet.page.wait_for_selector(f"#{view}-first:visible")
        told = wallet.tell(f"#{view}-first")
        assert told.startswith("No transfer from or to this address is in the blocks that this node has. ")
        assert told.endswith(pruned.earlier)
        assert not wallet.page.is_visible(f"#{view}-empty")
        wallet.navigate("History")


@pytest.mark.parametrize(
    "path", ["/block/1", checkout_path("order-1"), checkout_path("order-1", rest="&sinceHeight=5")]
)
def test_the_page_of_what_is_not_here_names_the_height(
    pruned: Pruned, watch: Callable[..., Watched], path: str
) -> None:
    watched = watch(origin=pruned.node.url)
    page = watched.go(path)
    assert f"only blocks from height {pruned.first} on" in page.inner_text("main .lead")
    watched.forgive("status of 410")


def test_a_checkout_says_that_nobody_can_tell_any_more(pruned: Pruned, watch: Callable[..., Watched]) -> None:
    """The first blocks of the order are deleted while its page is open, and one of them may have the payment."""
    watched, since = watch(origin=pruned.node.url), pruned.node.status()["height"]
    orders = [fresh("open"), fresh("paid")]
    unpaid, paid = [watched.go(checkout_path(order, rest=f"&sinceHeight={since}")) for order in orders]
    unpaid.wait_for_selector("[data-when=unpaid]:visible")
    pruned.chain.pay(pruned.account, SHOP, 5 * COIN // 2, orders[1])
    pruned.node.mine(2)
    paid.wait_for_selector("[data-when=confirmed]:visible")
    pruned.keep_from(int(since) + 2)
    for page in (unpaid, paid):
        # As when somebody comes back to the tab: the page of a paid order would ask half a minute later.
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    told = f"only blocks from height {pruned.first} on"
    assert told in unpaid.wait_for_selector("[data-when=unknown]:visible").inner_text()
    assert unpaid.title().startswith("Payment unknown: 2.5")
    assert not unpaid.is_visible("text=Open in a wallet app"), "it still offers to pay"
    assert not unpaid.is_visible("[data-trouble]")
    assert told in paid.wait_for_selector("[data-kept]:visible").inner_text()
    assert paid.is_visible("[data-when=confirmed]")
    watched.forgive("status of 410")
    watched.forgive("net::ERR_")
