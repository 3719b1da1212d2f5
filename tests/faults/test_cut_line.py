"""A transfer that is broadcast while the line to the only peer is cut, and reaches it after the line is back."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from svc_pay import DEVNET, Client, Key, parse_amount

from tests.browser.chain import FAUCET, SHOP
from tests.process_level.conftest import Nodes
from tests.process_level.running import free_port, wait_until
from tests.process_level.test_joining import peers

pytestmark = [pytest.mark.socket, pytest.mark.slow]


class Line:
    """A port that leads to another one, while it is not cut."""

    def __init__(self, port: int) -> None:
        self.cut = False
        self._to = port
        self._ends: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def set_cut(self, cut: bool) -> None:
        """Cut the line, with all that is on it, or mend it."""
        self.cut = cut
        for end in [*self._ends] if cut else []:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it."""
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.set_cut(True)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if self.cut:
                    near.close()
                    continue
                far = socket.create_connection(("127.0.0.1", self._to))
                self._ends |= {near, far}
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        with suppress(OSError):
            other.shutdown(socket.SHUT_RDWR)
        self._ends.discard(one)
        one.close()


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def line(port: int) -> Iterator[Line]:
    given = Line(port)
    yield given
    given.close()


def test_a_transfer_reaches_a_peer_90_seconds_after_its_line_is_back(nodes: Nodes, port: int, line: Line) -> None:
    """Nobody sends another transfer, and no block comes."""
    url = f"http://127.0.0.1:{line.port}"
    far = nodes.start("--network=devnet", f"--set=http.publicUrl={url}", name="far", port=port)
    near = nodes.start("--network=devnet", "--set=participation.alone=false", f'--set=p2p.seeds=["{url}"]', name="near")
    wait_until(lambda: peers(near) == 1, "a peer")
    line.set_cut(True)
    with Client(near.url) as client:
        sent = client.sign(Key(FAUCET.seed), DEVNET, recipient=SHOP, amount=parse_amount("5"))
        client.broadcast(sent)
    # Every attempt at the broadcast has failed by then.
    time.sleep(8)
    assert far.ok(far.operator("/operator/status"))["status"]["mempool"]["transactions"] == 0
    line.set_cut(False)
    wait_until(
        lambda: far.ok(far.operator("/operator/status"))["status"]["mempool"]["transactions"] == 1,
        "the transfer at the peer",
        seconds=90,
    )
