"""The JavaScript client in a browser, in a page of another origin than the node's."""

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.browser.chain import COIN, FAUCET, SHOP, Chain, fresh
from tests.browser.conftest import Watch
from tests.clients.vectors import vectors
from tests.process_level.pages import ROOT

pytestmark = [pytest.mark.socket, pytest.mark.slow]

STORY = """async ([url, wanted, proof, seed]) => {
  const pay = await import("/index.js");
  const { order } = await new pay.Client(url).paymentRequest(wanted);
  const key = await pay.Key.fromSeed(Uint8Array.from(seed));
  const node = new pay.Client(url);
  const { recipient, amount, reference } = wanted;
  const transfer = await node.sign(key, pay.DEVNET, { recipient, amount, reference });
  await node.broadcast(transfer);
  const { state, txid } = await node.waitFor(order, { state: "pending", timeout: 60 });
  const refused = await node.payment({ ...order, amount: 1n }).then(({ mismatches }) => mismatches.length);
  const error = await node.blockHash(10n ** 9n).catch(({ name, status }) => `${name} ${status}`);
  const { checkPaymentProof } = await import("/light.js");
  const checks = { argon2id: async () => new Uint8Array(32), tip: proof.tip };
  const proven = await checkPaymentProof(JSON.stringify(proof.answer), proof.order, checks);
  return [state, txid === transfer.txid, refused, error, proven.confirmations];
}"""


class Files(SimpleHTTPRequestHandler):
    """The modules of the client, and an empty page."""

    def do_GET(self) -> None:
        if self.path != "/":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><link rel=icon href=data:,><title>A shop</title>")
        return None

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def shop() -> Iterator[str]:
    """The origin of a page that serves the client."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Files, directory=str(ROOT / "clients/javascript/src")))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_page_of_another_origin_asks_pays_and_checks(watch: Watch, chain: Chain, shop: str) -> None:
    browser = watch(origin=shop)
    browser.others.add(chain.node.url)
    page = browser.go("/")
    wanted: dict[str, Any] = {"recipient": SHOP, "amount": str(COIN), "reference": fresh("page"), "confirmations": 2}
    told = page.evaluate(STORY, [chain.node.url, wanted, vectors("payment_proof"), list(FAUCET.seed)])
    assert told == ["pending", True, 1, "ApiError 404", 3]
    browser.forgive("404")
