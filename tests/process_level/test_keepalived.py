"""A node on a machine with an address that moves: keepalived lets sockets be bound to addresses of other machines."""

from collections.abc import Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tests.process_level.conftest import DEVNET
from tests.process_level.namespaces import Machine, NodeOnMachine, needs_namespaces
from tests.process_level.running import Answer, exchange

pytestmark = [pytest.mark.socket, pytest.mark.slow, needs_namespaces]

PORT = 8645
TOKEN, SECRET = "t" * 32, "s" * 32
OURS, VIRTUAL, SHOP = "198.41.0.1", "198.41.0.100", "198.41.0.2"
NOT_CALLED = "has an address that may not be called (own)"
OPTIONS = (
    *DEVNET,
    "--set=commerce.webhooks.enabled=true",
    f"--set=commerce.webhooks.manageToken={TOKEN}",
    f"--set=commerce.webhooks.signingSecret={SECRET}",
    "--set=commerce.webhooks.allowHttpCallbacks=true",
)


class Receiver(BaseHTTPRequestHandler):
    """Accepts every event."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    """That of a node, where any address can be bound, and that of a shop, where a receiver listens."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n::1 localhost\n")
    with ExitStack() as stack:
        ours, shop = Machine(hosts), Machine(hosts)
        for machine in (ours, shop):
            stack.callback(machine.remove)
        ours.link(shop)
        ours.add_address(f"{OURS}/24")
        shop.add_address(f"{SHOP}/24")
        ours.run("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_nonlocal_bind")
        with shop.sockets():
            server = ThreadingHTTPServer(("", PORT), Receiver)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.server_close)
        stack.callback(server.shutdown)
        yield ours, shop


def test_callbacks_go_to_others_and_not_to_the_address_that_has_moved_here(
    machines: tuple[Machine, Machine], tmp_path: Path
) -> None:
    ours, shop = machines
    node = NodeOnMachine(ours, tmp_path / "node", PORT, *OPTIONS)

    def tested(host: str) -> Answer:
        """The answer to the wish to test a callback."""
        body = {"callbackUrl": f"http://{host}:{PORT}/paid"}
        connection = node.connection()
        return exchange(connection, "POST", "/rpc/commerce/webhooks/test", body, Authorization=f"Bearer {TOKEN}")

    try:
        node.wait_ready()
        assert node.ok(tested(SHOP))["test"]["status"] == 200
        assert tested(OURS).error.startswith(f"callbackUrl: {OURS} {NOT_CALLED}")
        shop.add_address(f"{VIRTUAL}/32")
        assert node.ok(tested(VIRTUAL))["test"]["status"] == 200
        shop.run("ip", "address", "del", f"{VIRTUAL}/32", "dev", "cable")
        ours.add_address(f"{VIRTUAL}/32")
        assert tested(VIRTUAL).error.startswith(f"callbackUrl: {VIRTUAL} {NOT_CALLED}")
        node.stop()
    finally:
        node.kill()
