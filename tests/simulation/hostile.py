"""Nodes that mean harm: beneath each is an honest node that keeps up, so that it always knows what would hurt."""

import json
from collections.abc import Callable, Sequence
from hashlib import sha256
from random import Random
from urllib.parse import parse_qsl

from attrs import define, evolve, field, frozen

from svcd.chain.encoding import MAX_INTEGER, canonical
from svcd.interfaces import milliseconds
from svcd.p2p.client import HELLO_BYTES, HELLO_SECONDS, MAX_BLOCKS
from svcd.p2p.handshake import NodeKey
from svcd.p2p.peers import Peers
from svcd.p2p.transport import FailureKind, PeerReply, PeerRequest
from tests.p2p.remote_node import split_blocks

BLOCKS = "/p2p/blocks"
HEADERS = "/p2p/headers"
HELLO = "/p2p/hello"
STATUS = "/p2p/status"
_RELAYED = {"/p2p/block", "/p2p/header", "/p2p/transaction"}
WITHHELD_SECONDS = 600.0
"""From one block that is withheld to the next, on average."""


@frozen
class Late:
    """A reply that is held back for so many seconds."""

    reply: PeerReply
    seconds: float


Answer = PeerReply | Late | FailureKind | None
"""What a hostile node makes of a request; None is silence."""


def success(members: dict[str, object]) -> PeerReply:
    return PeerReply(200, canonical({"ok": True, **members}))


def blocks_of(wires: Sequence[bytes]) -> PeerReply:
    return PeerReply(200, b'{"ok":true,"blocks":[' + b",".join(wires) + b'],"height":"9"}')


def blocks_in(reply: PeerReply | None) -> list[bytes]:
    return split_blocks(reply.body) if reply is not None and reply.status == 200 else []


def headers_in(reply: PeerReply | None) -> tuple[list[bytes], int]:
    """The headers of a reply, and the height of the first."""
    if reply is None or reply.status != 200:
        return [], 0
    found = json.loads(reply.body)
    return [canonical(header) for header in found["headers"]], int(found["from"])


def headers_of(wires: Sequence[bytes], first: int, height: int = 9) -> PeerReply:
    return PeerReply(200, b'{"ok":true,"headers":[%s],"from":"%d","height":"%d"}' % (b",".join(wires), first, height))


def is_for(request: PeerRequest, path: str) -> bool:
    return request.path.partition("?")[0] == path


def wanted_of(request: PeerRequest) -> int:
    """How many blocks a request asks for, by height or by hash."""
    if request.body is None:
        return int(dict(parse_qsl(request.path.partition("?")[2])).get("limit", MAX_BLOCKS))
    return len(json.loads(request.body)["hashes"])


def altered(wire: bytes, random: Random) -> bytes:
    """A copy of a block, or of its header, that is another one, though it may have the same id."""
    block = json.loads(wire)
    if random.random() < 0.3:
        return wire.replace(b'"height"', b' "height"', 1)
    if block.get("transactions") and random.random() < 0.3:
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
    honest: Callable[[PeerRequest], PeerReply | None]
    """What its honest part answers."""
    random: Random
    send: Callable[[str, PeerRequest], object]
    """Calls somebody, past everything that an honest node observes."""
    mine: Callable[[], None]
    """Finds a block on the chain of its honest part, if there are transfers to be in it."""
    since: float = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.since = self.peers.node.now()

    def answer(self, request: PeerRequest) -> Answer:
        """What comes of a request."""
        return self.honest(request)

    def lets_out(self, request: PeerRequest) -> PeerRequest | None:
        """What becomes of a request that its honest part makes; None: it is kept back."""
        return None if request.path in _RELAYED else request

    def act(self) -> None:
        """Do harm unasked; called every second."""

    def claim(self, *, height: int, work: int) -> PeerReply:
        """A status; the hash is of a block that nobody has."""
        home = self.peers.node
        claims = self.key.unsigned(home.params, home.chain_manager.tip, milliseconds(home.clock)).fields()
        claims |= {"height": str(height), "hash": self.random.randbytes(32).hex()}
        return success({"status": {**claims, "cumulativeWork": str(work), "pruneHeight": "0", "peers": 0}})

    def claim_more(self, blocks: int) -> PeerReply:
        """A status with so many blocks more than there are, which is nothing out of the ordinary."""
        tip = self.peers.node.chain_manager.tip
        return self.claim(height=tip.height + blocks, work=tip.work + blocks * (tip.work // max(tip.height, 1) + 1))


class Boaster(Hostile):
    """Claims the greatest chain there can be, and delivers nothing of it."""

    def answer(self, request: PeerRequest) -> Answer:
        if request.path == STATUS:
            return self.claim(height=MAX_INTEGER, work=2**255)
        nothing: dict[str, object] = {"blocks": [], "headers": [], "peers": [], "transactions": []}
        return success({**nothing, "from": "1", "height": str(MAX_INTEGER), "next": "0"})


class Silent(Hostile):
    """Answers hellos and nothing else."""

    def answer(self, request: PeerRequest) -> Answer:
        return self.honest(request) if request.path == HELLO else None


class Forger(Hostile):
    """Claims more work than anybody and delivers noise."""

    def answer(self, request: PeerRequest) -> Answer:
        if request.path == STATUS:
            return self.claim_more(50)
        noise = canonical({"height": str(self.random.randrange(100)), "noise": self.random.randbytes(32).hex()})
        if is_for(request, HEADERS):
            return headers_of([noise], self.random.randrange(100))
        return blocks_of([noise]) if is_for(request, BLOCKS) else self.honest(request)


class EndpointFlooder(Hostile):
    """Floods the peer lists of others: hands out invented endpoints by the hundred, and says hello for each."""

    def _somewhere(self) -> str:
        number = self.random.getrandbits(24)
        return f"http://66.{number >> 16}.{number >> 8 & 255}.{number & 255}:8645"

    def answer(self, request: PeerRequest) -> Answer:
        if request.path.startswith("/p2p/peers"):
            return success({"peers": [{"endpoint": self._somewhere()} for _ in range(100)]})
        return self.honest(request)

    def act(self) -> None:
        others = self.peers.all()
        if others:
            home = self.peers.node
            invented = NodeKey(self.random.randbytes(32), self._somewhere())
            hello = invented.hello(home.params, home.chain_manager.tip, milliseconds(home.clock))
            body = canonical({"hello": hello.message()})
            request = PeerRequest(path=HELLO, body=body, max_bytes=HELLO_BYTES, seconds=HELLO_SECONDS)
            self.send(self.random.choice(others).endpoint, request)


class Ponderer(Hostile):
    """Claims more and takes its time over every question, most of all while the last shared block is looked for."""

    def answer(self, request: PeerRequest) -> Answer:
        if request.path == STATUS:
            return self.claim_more(3)
        reply, seconds = self.honest(request), self.random.uniform(5, 25)
        if is_for(request, HEADERS):
            wires, first = headers_in(reply)
            return Late(headers_of([altered(wire, self.random) for wire in wires], first), seconds)
        if is_for(request, BLOCKS):
            return Late(blocks_of([altered(wire, self.random) for wire in blocks_in(reply)]), seconds)
        return reply


class Staller(Hostile):
    """Shows headers and single blocks at once, and hangs as soon as it is asked for several blocks."""

    def answer(self, request: PeerRequest) -> Answer:
        if request.path == STATUS:
            return self.claim_more(40)
        if is_for(request, BLOCKS) and wanted_of(request) > 1:
            return None
        return self.honest(request)


class Repeater(Hostile):
    """Claims more, pretends to share nothing, and then hands out what everybody has, one at a time."""

    def answer(self, request: PeerRequest) -> Answer:
        if request.path == STATUS:
            return self.claim_more(20)
        if is_for(request, HEADERS):
            wires, first = headers_in(
                self.honest(PeerRequest(path=f"{HEADERS}?from=1&limit=1", max_bytes=0, seconds=0))
            )
            return Late(headers_of(wires, first), 1.0)
        reply = self.honest(request)
        if not is_for(request, BLOCKS):
            return reply
        wires = blocks_in(reply)
        if wanted_of(request) == 1:
            # Another block of the same chain where one is compared: well made, and not the one that is asked for.
            wires = [wire.replace(b'"slot":"', b'"slot":"1', 1) for wire in wires]
        return Late(blocks_of(wires[:1]), 1.0)


class Turncoat(Hostile):
    """Breaks off in the middle and comes back a while later, as if nothing had been."""

    gone_until: float = 0.0

    def answer(self, request: PeerRequest) -> Answer:
        now = self.peers.node.now()
        if now < self.gone_until:
            return FailureKind.UNREACHABLE
        if request.path == STATUS:
            return self.claim_more(5)
        if (is_for(request, BLOCKS) or is_for(request, HEADERS)) and self.random.random() < 0.5:
            self.gone_until = now + self.random.uniform(5, 40)
            return FailureKind.UNREACHABLE
        return self.honest(request)


class Spoiler(Hostile):
    """Passes on what honest nodes make, but altered, and as fast as it can."""

    def lets_out(self, request: PeerRequest) -> PeerRequest | None:
        if request.body is None or request.path not in ("/p2p/block", "/p2p/header"):
            return super().lets_out(request)
        message = json.loads(request.body)
        name = request.path.rpartition("/")[2]
        wire = altered(canonical(message.pop(name)), self.random)
        rest = b"".join(b'"%s":%s,' % (key.encode(), canonical(value)) for key, value in message.items())
        return evolve(request, body=b'{%s"%s":%s}' % (rest, name.encode(), wire))

    def answer(self, request: PeerRequest) -> Answer:
        reply = self.honest(request)
        if is_for(request, HEADERS):
            wires, first = headers_in(reply)
            return headers_of([altered(wire, self.random) for wire in wires], first)
        if is_for(request, BLOCKS):
            return blocks_of([altered(wire, self.random) for wire in blocks_in(reply)])
        return reply


class Claimant(Hostile):
    """Claims a work of 2^60 in its hello and its status; asked for headers, it hangs, or shows those there are."""

    blocks: int = 1_000

    def answer(self, request: PeerRequest) -> Answer:
        home = self.peers.node
        tip = evolve(
            home.chain_manager.tip, height=home.chain_manager.tip.height + self.blocks, hash=self.random.randbytes(32)
        )
        if request.path == STATUS:
            return self.claim(height=tip.height, work=2**60)
        reply = self.honest(request)
        if request.path == HELLO and reply is not None and reply.status == 200:
            return success({"hello": self.key.hello(home.params, tip, milliseconds(home.clock)).message()})
        if is_for(request, HEADERS):
            wires, first = headers_in(reply)
            return None if self.random.random() < 0.5 else headers_of(wires, first, tip.height)
        return None if is_for(request, BLOCKS) else reply


class Withholder(Hostile):
    """Finds a block now and then, announces it, shows its header and its work, and never hands out the block."""

    def act(self) -> None:
        if self.random.random() < 1 / WITHHELD_SECONDS:
            self.mine()

    def lets_out(self, request: PeerRequest) -> PeerRequest | None:
        return request if request.path == "/p2p/header" else super().lets_out(request)

    def answer(self, request: PeerRequest) -> Answer:
        return blocks_of([]) if is_for(request, BLOCKS) else self.honest(request)


class Miser(Hostile):
    """Shows every header, and hands out every tenth block."""

    def answer(self, request: PeerRequest) -> Answer:
        reply = self.honest(request)
        if not is_for(request, BLOCKS):
            return reply
        return blocks_of([wire for wire in blocks_in(reply) if sha256(wire).digest()[0] % 10 == 0])


KINDS: tuple[type[Hostile], ...] = (
    Boaster,
    Silent,
    Forger,
    EndpointFlooder,
    Ponderer,
    Staller,
    Repeater,
    Turncoat,
    Spoiler,
    Claimant,
    Withholder,
    Miser,
)
