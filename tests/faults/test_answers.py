"""Clients that request large answers and never read them: the node's memory stays as small as before."""

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from threading import Thread

import pytest
from attrs import define, field

from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.transaction import Draft, sign_transfer
from svcd.p2p.client import MAX_HASHES
from tests.chains import address_of
from tests.process_level.conftest import Nodes
from tests.process_level.running import DEADLINE, RunningNode, wait_until
from tests.process_level.test_devnet import FAUCET

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.socket, pytest.mark.deadline(600)]

ROUNDS = 10
CLIENTS = 4
"""Addresses of one round."""
CONNECTIONS = 40
"""Of one round: with answers of 3 MiB nearly twice the budget."""
TRANSFERS = 16
"""In the block that is asked for: it is asked for so often that the answer has 3 MiB."""
WARM_UP = 2
"""Rounds after which the node has allocated what it allocates once."""
SLOW_ANSWERS = 3
"""That a slow line takes while others attack."""
BUDGET_MIB = 64
"""What unread answers may take (docs/http.md)."""
MARGIN_MIB = 96
"""For answers that are being made, and for what the allocator holds between two of them."""
KEPT_MIB = 40
"""How much more than before the first round may be left after a round."""
GROWTH_MIB = 20
"""How much more may be left after the last round than after the first ones."""
# Nobody is exempt, and nobody is cut off for taking too long.
OPTIONS = ("--network=devnet", "--set=participation.onDemand=true", "--set=limits.answerSeconds=3600")


def resident_mib(node: RunningNode, name: str = "VmRSS") -> int:
    """VmRSS of the node, or its largest so far, VmHWM."""
    lines = Path(f"/proc/{node.process.pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) // 1024


def make_block(node: RunningNode) -> str:
    """The hash of a block with TRANSFERS transfers."""
    nonce = int(node.account(FAUCET)["nonce"])
    for number in range(TRANSFERS):
        draft = Draft(
            recipient=address_of(f"recipient-{number}", DEVNET.address_prefix),
            amount=10**11,
            fee=DEVNET.minimum_fee,
            nonce=nonce + number,
            timestamp=int(time.time() * 1000),
        )
        transfer = sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET)
        node.ok(node.post("/rpc/broadcast", b'{"transaction":' + transfer.wire + b"}"))
    return node.mine(1)[0]


def answered(node: RunningNode) -> float:
    """How many answers with blocks there were."""
    return node.measured("svcd_http_requests_total", route="/p2p/blocks", status="200")


def idle(node: RunningNode) -> bool:
    """Whether no client is connected."""
    return node.measured("svcd_http_connections", site="public") == 0


def request(hashes: dict[str, list[str]]) -> bytes:
    """A request for 3 MiB of blocks."""
    body = json.dumps(hashes).encode()
    return b"POST /p2p/blocks HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@contextmanager
def attack(node: RunningNode, number: int, asked: bytes) -> Iterator[None]:
    """CONNECTIONS connections from CLIENTS addresses that ask for as many answers and read none of them."""
    before = answered(node)
    with ExitStack() as stack:
        for each in range(CONNECTIONS):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(DEADLINE)
            client.bind((f"127.7.{number}.{each % CLIENTS + 1}", 0))
            client.connect(("127.0.0.1", node.port))
            client.sendall(asked)
        wait_until(lambda: answered(node) >= before + CONNECTIONS, "answers to all attackers")
        yield


@define
class SlowReader:
    """Asks for such an answer again and again, from an address of its own, and reads each slowly but steadily."""

    node: RunningNode
    asked: dict[str, list[str]]
    whole: int = 0
    """How many answers arrived completely."""
    cut_off: int = 0
    done: bool = False
    thread: Thread = field(init=False)

    def __enter__(self) -> "SlowReader":
        self.thread = Thread(target=self._run)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done = True
        self.thread.join()

    def _run(self) -> None:
        while not self.done:
            connection = HTTPConnection("127.0.0.1", self.node.port, timeout=DEADLINE, source_address=("127.8.0.1", 0))
            connection.request("POST", "/p2p/blocks", json.dumps(self.asked))
            response = connection.getresponse()
            assert response.status == 200
            left = int(response.headers["Content-Length"])
            with suppress(OSError):
                while part := response.read1(16 * 1024):
                    left -= len(part)
                    time.sleep(0.01)
            self.whole += left == 0
            self.cut_off += left > 0
            connection.close()


def test_memory_is_flat_over_ten_rounds(nodes: Nodes, capsys: pytest.CaptureFixture[str]) -> None:
    node = nodes.start(*OPTIONS)
    hashes = {"hashes": [make_block(node)] * MAX_HASHES}
    asked = request(hashes)
    wait_until(partial(idle, node), "no client")
    during, after = list[int](), list[int]()
    start = resident_mib(node)
    for number in range(ROUNDS):
        with attack(node, number, asked):
            during.append(resident_mib(node))
        wait_until(partial(idle, node), "no client")
        after.append(resident_mib(node))
    figures = {"start": start, "during": during, "after": after, "largest": resident_mib(node, "VmHWM")}
    with capsys.disabled():
        sys.stdout.write(f"\nunread answers, MiB: {json.dumps(figures)}\n")
    assert figures["largest"] < start + BUDGET_MIB + MARGIN_MIB
    assert max(after) < start + KEPT_MIB
    assert max(after[WARM_UP:]) - min(after[WARM_UP:]) < GROWTH_MIB


def test_a_slow_but_steady_reader_gets_the_whole_answer(nodes: Nodes) -> None:
    node = nodes.start(*OPTIONS)
    hashes = {"hashes": [make_block(node)] * MAX_HASHES}
    asked, rounds = request(hashes), count()
    with SlowReader(node, hashes) as reader:
        while reader.whole + reader.cut_off < SLOW_ANSWERS:
            with attack(node, next(rounds), asked):
                pass
    assert reader.cut_off == 0
    assert node.measured("svcd_http_connections_evicted_total", site="public") > next(rounds) * CONNECTIONS / 4
