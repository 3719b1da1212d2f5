"""Nodes that mean harm: beneath each is an honest node that keeps up, so that it always knows what would hurt."""

import json
from collections.abc import Callable, Sequence
from random import Random
from urllib.parse import parse_qsl

from attrs import define, field, frozen

from svcd.chain.encoding import MAX_INTEGER, canonical
from svcd.p2p.caller import Reply, Request, Trouble
from svcd.p2p.client import HELLO_BYTES, HELLO_SECONDS, split_blocks
from svcd.p2p.hello import NodeKey
from svcd.p2p.peers import Peers
from svcd.ports import milliseconds

BLOCKS = "/p2p/blocks"
STATUS = "/p2p/status"


@frozen
class Late:
    """A reply that is held back for so many seconds."""

    reply: Reply
    seconds: float


Answer = Reply | Late | Trouble | None
"""What a hostile node makes of a request; None is silence."""


def success(members: dict[str, object]) -> Reply:
    return Reply(200, canonical({"ok": True, **members}))


def blocks_of(wires: Sequence[bytes]) -> Reply:
    return Reply(200, b'{"ok":true,"blocks":[' + b",".join(wires) + b'],"height":"9"}')


def blocks_in(reply: Reply | None) -> list[bytes]:
    return split_blocks(reply.body, 16) if reply is not None and reply.status == 200 else []


def query_of(request: Request) -> dict[str, int]:
    return {name: int(text) for name, text in parse_qsl(request.path.partition("?")[2])}


def altered(wire: bytes, random: Random) -> bytes:
    """A copy of a block that is not the block, though it may have the same id."""
    block = json.loads(wire)
    if random.random() < 0.3:
        return wire.replace(b'"height"', b' "height"', 1)
    if block["transactions"] and random.random() < 0.3:
        block["transactions"].append(block["transactions"][0])
        return canonical(block)
    name = random.choice(["signature", "stateRoot", "transactionsRoot", "workNonce", "parentHash", "baseTarget"])
    digits = list(block[name])
    place = random.randrange(len(digits))
    digits[place] = "0" if digits[place] != "0" else "1"
    block[name] = "".join(digits)
    return canonical(block)


@define(eq=False)
class Hostile:
    """Somebody who greets as one should; what else is asked is answered honestly, but where a kind says otherwise.

    What its honest part would pass on it keeps to itself.
    """

    peers: Peers
    """Those of its honest part."""
    key: NodeKey
    honest: Callable[[Request], Reply | None]
    """What its honest part answers."""
    random: Random
    send: Callable[[str, Request], object]
    """Calls somebody, past everything that an honest node observes."""
    since: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.since = self.peers.home.now()

    def answer(self, request: Request) -> Answer:
        """What comes of a request."""
        return self.honest(request)

    def lets_out(self, request: Request) -> Request | None:
        """What becomes of a request that its honest part makes; None: it is kept back."""
        return request if request.body is None or request.path == "/p2p/hello" else None

    def act(self) -> None:
        """Do harm unasked; called every second."""

    def claim(self, *, height: int, work: int) -> Reply:
        """A status; the hash is of a block that nobody has."""
        home = self.peers.home
        claims = self.key.unsigned(home.params, home.ledger.tip, milliseconds(home.clock)).fields()
        claims |= {"height": str(height), "hash": self.random.randbytes(32).hex()}
        return success({"status": {**claims, "cumulativeWork": str(work), "peers": 0, "time": claims["timestamp"]}})

    def claim_more(self, blocks: int) -> Reply:
        """A status with so many blocks more than there are, which is nothing out of the ordinary."""
        tip = self.peers.home.ledger.tip
        return self.claim(height=tip.height + blocks, work=tip.work + blocks * (tip.work // max(tip.height, 1) + 1))


class Boaster(Hostile):
    """Claims the greatest chain there can be, and delivers nothing of it."""

    def answer(self, request: Request) -> Answer:
        if request.path == STATUS:
            return self.claim(height=MAX_INTEGER, work=2**255)
        return success({"blocks": [], "height": str(MAX_INTEGER), "peers": [], "transactions": [], "next": "0"})


class Silent(Hostile):
    """Answers hellos and nothing else."""

    def answer(self, request: Request) -> Answer:
        return self.honest(request) if request.path == "/p2p/hello" else None


class Forger(Hostile):
    """Claims more work than anybody and delivers noise."""

    def answer(self, request: Request) -> Answer:
        if request.path == STATUS:
            return self.claim_more(50)
        if not request.path.startswith(BLOCKS):
            return self.honest(request)
        noise = {"height": str(self.random.randrange(100)), "noise": self.random.randbytes(32).hex()}
        return blocks_of([canonical(noise)])


class Crowd(Hostile):
    """Has others note endpoints by the hundred: hands them out, and says hello in the name of each."""

    def _somewhere(self) -> str:
        number = self.random.getrandbits(24)
        return f"http://66.{number >> 16}.{number >> 8 & 255}.{number & 255}:8645"

    def answer(self, request: Request) -> Answer:
        if request.path.startswith("/p2p/peers"):
            return success({"peers": [{"endpoint": self._somewhere()} for _ in range(100)]})
        return self.honest(request)

    def act(self) -> None:
        others = self.peers.all()
        if others:
            home = self.peers.home
            invented = NodeKey(self.random.randbytes(32), self._somewhere())
            hello = invented.hello(home.params, home.ledger.tip, milliseconds(home.clock))
            body = canonical({"hello": hello.message()})
            request = Request(path="/p2p/hello", body=body, max_bytes=HELLO_BYTES, seconds=HELLO_SECONDS)
            self.send(self.random.choice(others).endpoint, request)


class Ponderer(Hostile):
    """Claims more and takes its time over every question, most of all while the last shared block is looked for."""

    def answer(self, request: Request) -> Answer:
        if request.path == STATUS:
            return self.claim_more(3)
        reply = self.honest(request)
        if not request.path.startswith(BLOCKS):
            return reply
        wires = [altered(wire, self.random) for wire in blocks_in(reply)]
        return Late(blocks_of(wires), self.random.uniform(5, 25))


class Staller(Hostile):
    """Shows single blocks at once, and hangs as soon as it is asked for a range."""

    def answer(self, request: Request) -> Answer:
        if request.path == STATUS:
            return self.claim_more(40)
        if request.path.startswith(BLOCKS) and query_of(request)["limit"] > 1:
            return None
        return self.honest(request)


class Repeater(Hostile):
    """Claims more, pretends to share nothing, and then hands out what everybody has, a block at a time."""

    def answer(self, request: Request) -> Answer:
        if request.path == STATUS:
            return self.claim_more(20)
        reply = self.honest(request)
        if not request.path.startswith(BLOCKS):
            return reply
        wires = blocks_in(reply)
        if query_of(request)["limit"] == 1:
            # Another block of the same chain where one is compared: well made, and not the one that is asked for.
            wires = [wire.replace(b'"slot":"', b'"slot":"1', 1) for wire in wires]
        return Late(blocks_of(wires[:1]), 1.0)


class Turncoat(Hostile):
    """Breaks off in the middle and comes back a while later, as if nothing had been."""

    gone_until: float = 0.0

    def answer(self, request: Request) -> Answer:
        now = self.peers.home.now()
        if now < self.gone_until:
            return Trouble.UNREACHABLE
        if request.path == STATUS:
            return self.claim_more(5)
        if request.path.startswith(BLOCKS) and self.random.random() < 0.5:
            self.gone_until = now + self.random.uniform(5, 40)
            return Trouble.UNREACHABLE
        return self.honest(request)


class Spoiler(Hostile):
    """Passes on what honest nodes make, but altered, and as fast as it can."""

    def lets_out(self, request: Request) -> Request | None:
        if request.path != "/p2p/block" or request.body is None:
            return super().lets_out(request)
        body = b'{"block":' + altered(request.body[len(b'{"block":') : -1], self.random) + b"}"
        return Request(path=request.path, body=body, max_bytes=request.max_bytes, seconds=request.seconds)

    def answer(self, request: Request) -> Answer:
        reply = self.honest(request)
        if not request.path.startswith(BLOCKS):
            return reply
        return blocks_of([altered(wire, self.random) for wire in blocks_in(reply)])


KINDS: tuple[type[Hostile], ...] = (
    Boaster,
    Silent,
    Forger,
    Crowd,
    Ponderer,
    Staller,
    Repeater,
    Turncoat,
    Spoiler,
)
