"""Nodes that mean harm: they speak the protocol just well enough to be listened to."""

import json
from collections.abc import Callable
from random import Random

from svcd.chain.encoding import MAX_INTEGER, canonical
from svcd.p2p.caller import Reply, Request
from svcd.p2p.hello import NodeKey
from svcd.p2p.peer import Home
from svcd.ports import milliseconds

Behaviour = Callable[["Hostile", Request], Reply | None]
"""What a hostile node answers; None is silence."""


class Hostile:
    """Answers hellos with a good signature, and everything else as its behaviour says."""

    def __init__(self, home: Home, key: NodeKey, behaviour: Behaviour, random: Random) -> None:
        self.home = home
        self.key = key
        self.random = random
        self._behaviour = behaviour

    def answer(self, request: Request) -> Reply | None:
        """The answer to a request, or None for none."""
        if request.path == "/p2p/hello":
            hello = self.key.hello(self.home.params, self.home.ledger.tip, milliseconds(self.home.clock))
            return reply({"hello": hello.message()})
        return self._behaviour(self, request)

    def status(self, *, height: int, work: int) -> Reply:
        """A claim."""
        claims = self.key.unsigned(self.home.params, self.home.ledger.tip, milliseconds(self.home.clock)).fields()
        claims["height"] = str(height)
        return reply({"status": {**claims, "cumulativeWork": str(work), "peers": 0, "time": claims["timestamp"]}})


def reply(members: dict[str, object]) -> Reply:
    return Reply(200, canonical({"ok": True, **members}))


def boaster(node: Hostile, request: Request) -> Reply | None:
    """Claims the greatest chain there can be, and delivers nothing of it."""
    if request.path == "/p2p/status":
        return node.status(height=MAX_INTEGER, work=2**255)
    return reply({"blocks": [], "height": str(MAX_INTEGER), "peers": [], "transactions": [], "next": "0"})


def silent(node: Hostile, request: Request) -> Reply | None:
    """Answers hellos and nothing else."""
    return None


def forger(node: Hostile, request: Request) -> Reply | None:
    """Claims more work than anybody and delivers blocks of noise."""
    if request.path == "/p2p/status":
        tip = node.home.ledger.tip
        return node.status(height=tip.height + 50, work=tip.work * 2 + 1)
    noise = {"height": str(node.random.randrange(100)), "noise": node.random.randbytes(32).hex()}
    return Reply(200, b'{"ok":true,"blocks":[' + json.dumps(noise).encode() + b'],"height":"9","peers":[]}')


def crowd(node: Hostile, request: Request) -> Reply | None:
    """Hands out endpoints by the hundred, so that others fill their books with them."""
    if request.path == "/p2p/status":
        tip = node.home.ledger.tip
        return node.status(height=tip.height, work=tip.work)
    numbers = [node.random.getrandbits(24) for _ in range(100)]
    peers = [{"endpoint": f"http://66.{n >> 16}.{n >> 8 & 255}.{n & 255}:8645"} for n in numbers]
    return reply({"peers": peers, "blocks": [], "height": "0", "transactions": [], "next": "0"})


BEHAVIOURS = (boaster, silent, forger, crowd)
