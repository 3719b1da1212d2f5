"""Thousands of malformed requests to every POST route: never a 500, never a hang, always the one form of an error."""

import json
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.web import http

from svcd.chain.errors import Refusal
from svcd.chain.transition import genesis_point
from svcd.p2p.handshake import NodeKey
from svcd.web.channel import HTTP2_REFUSAL
from svcd.web.site import Site
from tests.chains import ChainBuilder, key_of
from tests.rpc.conftest import START_SLOT, public_client
from tests.rpc.malformed import bodies, compact, framings, malformed_bodies, malformed_framings
from tests.rpc.node import OPERATOR_SOCKET, PARAMS, Node
from tests.web.wire import Recording, Wire, split_responses

LONGEST_WAIT = 45
"""Seconds after which no request may be under way: more than the deadline of a body, and of closing."""
PEER = "198.51.100.23"
"""Who may send what breaks the rules without being shut out for it."""

PRESENT = PARAMS.slot_time(START_SLOT)
CHAIN = ChainBuilder(PARAMS)
UNAFFORDABLE = CHAIN.transfer("dave", "bob", 2_500_000_000, timestamp=PRESENT, reference="order-1")
TRANSACTION = json.loads(UNAFFORDABLE.wire)
FORGED = CHAIN.block(transfers=[CHAIN.transfer("alice", "bob", 5, reference="order-1")], break_=Refusal.BLOCK_SIGNATURE)
BLOCK = json.loads(FORGED.wire())
NODE = NodeKey(key_of("another node").seed, "https://node.example:8645")
HELLO = {**NODE.hello(PARAMS, genesis_point(PARAMS), PRESENT).message(), "nodeId": "svcnode_" + "ab" * 16}
VALID: dict[str, Any] = {
    "/rpc/broadcast": {"transaction": TRANSACTION},
    "/rpc/commerce/payment-request": {
        "recipient": CHAIN.address("bob"),
        "amount": "0.5",
        "reference": "order-1",
        "label": "Tea",
        "confirmations": 12,
    },
    "/p2p/hello": {"hello": HELLO},
    "/p2p/transaction": {"transaction": TRANSACTION},
    "/p2p/block": {"block": BLOCK},
    "/operator/mine": {"blocks": 1, "following": 5, "producer": "ab" * 32},
    "/operator/reorganise": {"depth": 1, "dropTransactions": False},
    "/operator/faucet": {"recipient": CHAIN.address("bob"), "amount": "0.5"},
}
MEANINGS = {
    "/rpc/broadcast": "the balance is 2500010001 base units short",
    "/p2p/transaction": "the balance is 2500010001 base units short",
    "/p2p/hello": "nodeId is not that of nodePublicKey",
    "/p2p/block": "is not signed by its producer's key",
}
LONG = {"transaction", "hello", "block"}
every_route = pytest.mark.parametrize("path", VALID)


class Siege:
    """Sends to one route and judges what comes back."""

    def __init__(self, node: Node, clock: Clock, path: str) -> None:
        local = path.startswith("/operator/")
        self.site: Site = node.operator if local else node.public
        self._peer: Any = OPERATOR_SOCKET if local else PEER
        self._cap = self.site.limits.body_caps(b"POST", path.encode())
        self._clock = clock
        self._path = path
        self.site.recorder = self.noted = Recording()

    def body(self, body: bytes) -> str:
        """The sentence in answer to a well-formed request with this body, which is answered at once; ok if taken."""
        head = f"POST {self._path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        wire = Wire(self.site, self._peer).send(head + body)
        self._clock.pump([0] * 5)
        response = wire.response()
        wire.close()
        self._at_rest()
        if response.status == 200:
            assert response.json["ok"] is True
            return "ok"
        assert response.status == 400, (body, response)
        assert 10 < len(response.error) < 300
        assert "Traceback" not in response.error
        return response.error

    def raw(self, pieces: Iterable[bytes]) -> None:
        """Any bytes: whatever they are, the connection is over after the longest deadline, and all answers are JSON."""
        before = len(self.noted.answers)
        wire = Wire(self.site, self._peer)
        for piece in pieces:
            wire.send(piece)
            assert self.site.bodies.bytes <= self._cap
        self._clock.pump([1] * LONGEST_WAIT)
        wire.close()
        # Only the preface of HTTP/2 is refused in HTTP/2.
        received = bytes(wire.received)
        answered = received.removesuffix(HTTP2_REFUSAL)
        # What cannot be parsed as whole answers, each with a length and JSON, fails here.
        responses = split_responses(answered)
        assert len(responses) + (answered != received) == len(self.noted.answers) - before
        for response in responses:
            assert response.status in {200, 400, 404, 405, 408, 413}, response
            assert response.json["ok"] is (response.status == 200), response
            assert response.status == 200 or 10 < len(response.error) < 300
        self._at_rest()

    def _at_rest(self) -> None:
        assert self.noted.statuses[500] == self.noted.statuses[503] == 0
        assert len(self.site.connections) == self.site.bodies.bytes == 0


@pytest.fixture
def node(open_node: Callable[..., Node]) -> Node:
    """A node that answers everybody: clients, other nodes and its operator."""
    return open_node(peers=True, exempt=(f"{PEER}/32",))


@pytest.fixture
def besiege(node: Node, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Siege]:
    """``besiege(path)``: a siege of that route of a node on which blocks have been made."""

    def refuse(*_: object, **__: object) -> object:
        raise AssertionError("a body went to a file")

    monkeypatch.setattr(http, "tempfile", SimpleNamespace(TemporaryFile=refuse))
    node.grow("genesis: b[1..3]")
    return lambda path: Siege(node, clock, path)


@every_route
def test_body_that_is_spoiled_is_right_in_form(besiege: Callable[[str], Siege], path: str) -> None:
    """What the lists spoil would be taken, or refused only for what it means."""
    siege = besiege(path)
    assert MEANINGS.get(path, "ok") in siege.body(compact(VALID[path]).encode())


@every_route
def test_list_of_bodies(besiege: Callable[[str], Siege], node: Node, path: str) -> None:
    siege = besiege(path)
    spoiled = list(malformed_bodies(VALID[path]))
    assert len(spoiled) > (1_000 if LONG & VALID[path].keys() else 200)
    for body in spoiled:
        siege.body(body)
    # Nearly any text will do as a label or a reference.
    assert siege.noted.statuses[400] > (0.9 if path.startswith("/rpc/commerce/") else 0.95) * len(spoiled)
    if not path.startswith("/operator/"):
        assert (len(node.node_context.transaction_pool.mempool), node.node_context.chain_manager.tip.height) == (0, 3)


@every_route
def test_list_of_framings(besiege: Callable[[str], Siege], path: str) -> None:
    siege = besiege(path)
    for request in malformed_framings(path, compact(VALID[path]).encode()):
        siege.raw([request])
        siege.raw(request[at : at + 997] for at in range(0, len(request), 997))


# One test draws all routes: pytest-twisted wraps a test of Hypothesis once more for every parameter.


@settings(
    max_examples=min(600, settings().max_examples * 12), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(list(VALID)), data=st.data())
def test_any_body(besiege: Callable[[str], Siege], path: str, data: st.DataObject) -> None:
    besiege(path).body(data.draw(bodies(VALID[path])))


def test_framing_with_the_preface_of_http2(besiege: Callable[[str], Siege]) -> None:
    """Hypothesis takes it from the source now and then."""
    siege = besiege("/rpc/broadcast")
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    siege.raw([preface])
    siege.raw([b"POST /rpc/broadcast HTTP/1.1\r\n\r\n", preface])
    assert siege.noted.statuses[505] == 2


@settings(
    max_examples=min(400, settings().max_examples * 8), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(path=st.sampled_from(list(VALID)), data=st.data())
def test_any_framing(besiege: Callable[[str], Siege], path: str, data: st.DataObject) -> None:
    besiege(path).raw(data.draw(framings(path, VALID[path])))


@every_route
def test_node_answers_afterwards(besiege: Callable[[str], Siege], node: Node, path: str) -> None:
    client, siege = public_client(node), besiege(path)
    for body in list(malformed_bodies(VALID[path]))[:100]:
        siege.body(body)
    assert client.ok("/rpc/status")["status"]["height"] == "3"
