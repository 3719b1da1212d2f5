"""Explorer and checkout on a network of somebody's own: its name, the letter of its icon, and a payment."""

import re
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from attrs import evolve, frozen

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET, NetworkParams
from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Draft, sign_transfer
from svcd.config.network_file import render_network_file
from tests.browser.chain import COIN, SHOP, checkout_path, fresh
from tests.browser.conftest import Watch
from tests.browser.watching import Watched, wait_for_true
from tests.process_level.conftest import Nodes
from tests.process_level.running import RunningNode, wait_until

pytestmark = [pytest.mark.socket, pytest.mark.slow]

PREFIX: Final = "fest"
BUYER: Final = secrets.token_bytes(32)


def address_of(seed: bytes) -> str:
    return encode_address(key_hash(public_key_of(seed)), PREFIX)


STALL: Final = address_of(bytes(32))


@frozen
class Festival:
    """A network whose only node makes a block every few seconds."""

    params: NetworkParams
    node: RunningNode

    def pay(self, recipient: str, units: int, reference: str) -> str:
        """A payment of the buyer; its txid."""
        nonce = int(self.node.account(address_of(BUYER))["pendingNonce"])
        now, fee = int(time.time() * 1000), self.params.minimum_fee
        draft = Draft(recipient=recipient, amount=units, fee=fee, nonce=nonce, timestamp=now, reference=reference)
        wire = sign_transfer(draft, seed=BUYER, params=self.params).wire
        return str(self.node.ok(self.node.post("/rpc/broadcast", b'{"transaction":' + wire + b"}"))["txid"])


@pytest.fixture(scope="module")
def festival(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Festival]:
    folder = tmp_path_factory.mktemp("festival")
    began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=10)
    params = evolve(
        DEVNET,
        name="festival",
        unit="Token",
        network_id=4711,
        chain_id="FESTIVAL-2026",
        address_prefix=PREFIX,
        genesis_time=1000 * int(began.timestamp()),
        memory_kib=64,
        transaction_past_seconds=3_600,
        transaction_future_seconds=600,
        allocations=((address_of(BUYER), 1_000 * COIN),),
    )
    file = folder / "festival.toml"
    file.write_text(render_network_file(params), encoding="utf-8")
    nodes = Nodes(folder)
    making = [f"--set=participation.{name}" for name in ("enabled=true", "alone=true", "workers=1")]
    node = nodes.start(f"--network={file}", *making, '--set=limits.exempt=["127.0.0.0/8"]')
    wait_until(lambda: int(node.status()["height"]) >= 2, "blocks")
    yield Festival(params, node)
    nodes.stop()


@pytest.fixture
def visitor(watch: Watch, festival: Festival) -> Watched:
    """A browser of somebody who was never there."""
    return watch(origin=festival.node.url)


@pytest.mark.parametrize("path", ["/", "/block/0", "/mempool", "/peers", checkout_path("order-0", recipient=STALL)])
def test_every_page_says_whose_network_it_is(visitor: Watched, path: str) -> None:
    page = visitor.go(path)
    assert "Festival" in page.title()
    assert "Festival" in page.inner_text("header")
    assert "FESTIVAL-2026" in page.inner_text("footer")
    icon = str(page.get_attribute("link[rel=icon]", "href"))
    assert re.fullmatch(r"/static/icon-f\.[0-9a-f]{16}\.svg", icon)
    assert ">F</text>" in page.request.get(visitor.origin + icon).text()
    wait_for_true(page, f"document.querySelector('header img[src=\"{icon}\"]').naturalWidth > 0")


def test_the_search_knows_its_addresses_and_no_others(visitor: Watched) -> None:
    page = visitor.go("/")
    page.fill("input[name=q]", STALL)
    page.press("input[name=q]", "Enter")
    page.wait_for_url(f"**/address/{STALL}")
    page.fill("input[name=q]", SHOP)
    page.press("input[name=q]", "Enter")
    page.wait_for_url("**/search?*")
    assert SHOP in page.inner_text("main")
    visitor.forgive("40[04]")


def test_the_checkout_turns_to_paid(visitor: Watched, festival: Festival) -> None:
    order = fresh("order")
    page = visitor.go(checkout_path(order, recipient=STALL))
    link = str(page.get_attribute("a[href^='svc:']", "href"))
    assert link.startswith(f"svc:{STALL}?amount=2.5&ref={order}")
    txid = festival.pay(STALL, 5 * COIN // 2, order)
    page.locator("[data-when=confirmed]:visible").first.wait_for()
    page = visitor.go(f"/tx/{txid}")
    shown = page.inner_text("main")
    assert STALL in shown
    assert order in shown
