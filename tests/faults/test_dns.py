"""A nameserver that never answers: whoever needs a name waits, and nobody else does; no event is lost."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.net.certificates import Signed, sign
from tests.process_level.conftest import Nodes
from tests.process_level.receiver import Receiver
from tests.process_level.running import wait_until
from tests.process_level.test_webhook_story import SECRET, Shop

pytestmark = [pytest.mark.slow, pytest.mark.socket, pytest.mark.deadline(300)]

NAMESERVER = "127.53.53.53"
NAME = "shop.test"
HANGS_SECONDS = 150
"""How long the system looks a name up in vain, which it counts in five attempts."""
PAID = "pending: pending 0"


class Nameserver:
    """To it every name is 127.0.0.1, until it only hears the questions and says nothing."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = True
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((NAMESERVER, 53))
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def close(self) -> None:
        self._socket.sendto(b"", (NAMESERVER, 53))
        self._thread.join()
        self._socket.close()

    def _listen(self) -> None:
        while (received := self._socket.recvfrom(512))[0]:
            query, client = received
            self.asked += 1
            if self.answers:
                self._socket.sendto(self._answer(query), client)

    def _answer(self, query: bytes) -> bytes:
        """RFC 1035: one A record for a question of type A, none for any other type."""
        end = query.index(b"\0", 12) + 5
        is_a = query[end - 4 : end - 2] == b"\0\1"
        head = query[:2] + b"\x81\x80\0\1" + (b"\0\1" if is_a else b"\0\0") + b"\0\0\0\0"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton("127.0.0.1") if is_a else b""
        return head + query[12:end] + record


@pytest.fixture
def silent_dns(tmp_path: Path, instead_of_twistd: Callable[[str], None]) -> Iterator[Nameserver]:
    """Nodes ask this nameserver and no other, in a mount namespace of their own."""
    configuration = tmp_path / "resolv.conf"
    configuration.write_text(f"nameserver {NAMESERVER}\noptions timeout:{HANGS_SECONDS // 5} attempts:5\n")
    nsswitch = tmp_path / "nsswitch.conf"
    nsswitch.write_text("hosts: files dns\n")
    instead_of_twistd(
        f"exec unshare -m sh -c 'mount --bind {configuration} /etc/resolv.conf "
        f"&& {{ [ ! -e /etc/nsswitch.conf ] || mount --bind {nsswitch} /etc/nsswitch.conf; }} "
        f'&& exec "$0" "$@"\' $TWISTD "$@"'
    )
    nameserver = Nameserver()
    yield nameserver
    nameserver.close()


def failures(shop: Shop, watch: str) -> set[str]:
    """Why attempts to deliver something for a watch failed."""
    return {event["lastError"] for event in shop.watch(watch)["events"]} - {None}


def attempts(shop: Shop, watch: str) -> int:
    """How many attempts to deliver something for a watch have ended."""
    return sum(event["attempts"] for event in shop.watch(watch)["events"])


def confirmed_beside(shop: Shop, nameserver: Nameserver, watch: str) -> bool:
    """Confirm the shop's order; whether an event of it arrived while an attempt for another watch was under way.

    On a busy machine that attempt may have ended meanwhile; there is another one beside the next event.
    """
    told, beside, asked = [PAID], False, 0
    for name in ("confirming: confirming 1", "confirming: confirming 2", "confirmed: confirmed 3"):
        if not beside:
            wait_until(lambda asked=asked: nameserver.asked > asked, "a question")  # type: ignore[misc]
        before = attempts(shop, watch)
        shop.node.mine(1)
        told.append(name)
        shop.hears(*told)
        beside = beside or attempts(shop, watch) == before
        asked = nameserver.asked
    return beside


def test_a_nameserver_that_never_answers(
    silent_dns: Nameserver, nodes: Nodes, authority: Signed, tmp_path: Path
) -> None:
    near, far = Receiver(SECRET), Receiver(SECRET)
    (tmp_path / "far").mkdir()
    with (
        near.serving(sign("localhost", by=authority), tmp_path),
        far.serving(sign(NAME, by=authority), tmp_path / "far"),
    ):
        shop = Shop(nodes, near, authority)
        shop.fund("customer")
        order = shop.order("order-1")
        wanted = {
            "recipient": order["request"]["recipient"],
            "amount": "25",
            "reference": "order-1",
            "confirmations": 3,
            "callbackUrl": f"https://{NAME}:{far.port}/paid",
        }
        watch = shop.ask("POST", "/rpc/commerce/webhooks", wanted)
        assert watch.status == 201, watch
        identifier = watch.json["subscription"]["id"]
        asked = silent_dns.asked
        silent_dns.answers = False
        shop.pay("customer", order["request"])
        shop.hears(PAID)
        # The other merchant's event is under way meanwhile, and neither blocks nor clients wait for that.
        wait_until(lambda: silent_dns.asked > asked, "a question")
        assert confirmed_beside(shop, silent_dns, identifier)
        assert shop.node.status()["height"] == "4"
        wait_until(lambda: failures(shop, identifier) != set(), "a failed attempt")
        assert failures(shop, identifier) <= {"timeout", "dns"}
        assert far.requests == 0
        refused = shop.ask("POST", "/rpc/commerce/webhooks", {**wanted, "reference": "order-2"})
        sentence = f"callbackUrl: {NAME} was not found within 5 s; try again, or give a name that the DNS knows"
        assert (refused.status, refused.error) == (503, sentence)
        # A look-up that hangs does not hold up the stop, and what waits is sent when names are told again.
        began = time.monotonic()
        shop.node.stop()
        assert time.monotonic() - began < HANGS_SECONDS / 2
        silent_dns.answers = True
        shop.start()
        wait_until(lambda: "confirmed: confirmed 3" in far.names, f"the confirmation; there came {far.names}")
        assert far.names == ["confirmed: confirmed 3"], "it supersedes what could not be sent"
        near.check()
        far.check()
        nodes.stop()
