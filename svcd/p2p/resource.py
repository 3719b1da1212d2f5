"""What we answer other nodes (docs/http.md "Peers")."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from hashlib import sha256
from typing import Final

from svcd.chain.block import parse_block
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.params import NetworkParams
from svcd.chain.transaction import parse_transfer
from svcd.chain.transition import ChainPoint
from svcd.node.transfers import Transfers
from svcd.p2p.bans import INVALID_SECONDS, MALFORMED_SECONDS, address_name, posts_name
from svcd.p2p.fields import (
    CLAIMS,
    DECIMAL,
    FROM,
    GREETING,
    HASH,
    HELLO,
    LIMIT,
    MAX_PEERS,
    NODE_ID,
    OBJECT,
    OBJECTS,
    PEERS,
    SINCE,
    TEXT,
    TRANSACTION,
    TRANSFERS,
)
from svcd.p2p.hello import Fault, HelloRefused, LatestHellos, check_hello, parse_hello
from svcd.p2p.peer import Home
from svcd.p2p.peers import Peers
from svcd.p2p.relay import note_sender
from svcd.ports import milliseconds
from svcd.store.chain_store import ChainReader
from svcd.web.answers import Answer, Rendered
from svcd.web.errors import HttpError
from svcd.web.limits import DEFAULT_BODY_CAP
from svcd.web.routing import Field, Route, object_schema

BODY_CAPS: Final = {(b"POST", b"/p2p/transaction"): 32 * 1024, (b"POST", b"/p2p/block"): 2 * 1024 * 1024}
"""How many bytes the routes take that need more than others."""
MAX_REPLY_BYTES: Final = 3 * 1024 * 1024
_BANNED: Final = "this address is banned here for a while: it sent what breaks the rules"
_BEFORE, _AFTER = b'{"block":', b"}"
_POLICY: Final = {Refusal.TIMESTAMP, Refusal.NONCE, Refusal.FEE, Refusal.BALANCE, Refusal.POOL}
"""Why an honest peer's transfer may be refused here: what waits differs from node to node."""
_MALFORMED: Final = {Refusal.ENCODING, Refusal.SIZE, Refusal.FIELDS, Refusal.FORMAT, Refusal.CONSTANTS}


class PeerRoutes:
    """Signed handshakes, relay, and blocks for those who catch up."""

    def __init__(self, peers: Peers, *, transfers: Transfers, on_orphan: Callable[[], None]) -> None:
        self._peers = peers
        self._home: Home = peers.home
        self._transfers = transfers
        self._hellos = LatestHellos()
        self._on_orphan = on_orphan

    @Route(
        "GET",
        "/p2p/status",
        "What this node claims its chain to be",
        bucket="p2p",
        answers={
            200: object_schema(
                {
                    "status": object_schema(
                        {
                            **CLAIMS,
                            "cumulativeWork": DECIMAL,
                            "peers": {"type": "integer", "minimum": 0},
                            "time": DECIMAL,
                        }
                    )
                }
            )
        },
    )
    def status(self) -> Answer:
        """Answer GET /p2p/status."""
        home, now = self._home, milliseconds(self._home.clock)
        claims = home.key.unsigned(home.params, home.ledger.tip, now).fields()
        work = str(home.ledger.tip.work)
        return {"status": {**claims, "cumulativeWork": work, "peers": len(self._peers.all()), "time": str(now)}}

    @Route(
        "POST",
        "/p2p/hello",
        "Exchange signed hellos",
        bucket="p2p",
        body_fields=(GREETING,),
        with_client=True,
        answers={200: object_schema({"hello": HELLO})},
        errors={403: "The caller is banned."},
    )
    async def hello(self, hello: object, client: str | None) -> Answer:
        """Answer POST /p2p/hello.

        A hello is signed, unlike all else that is posted: no neighbour's price keeps it from being heard.
        """
        try:
            theirs = parse_hello(hello)
            if client is not None and self._peers.bans.is_banned(address_name(client), self._home.now()):
                raise HttpError(403, _BANNED)
            check_hello(theirs, self._home.params, own=self._home.key.node_id, now=milliseconds(self._home.clock))
            self._hellos.take(theirs)
        except HelloRefused as refused:
            if refused.fault is Fault.FORMAT:
                self._price_nonsense(client, refused.detail)
            raise HttpError(400, refused.detail) from refused
        if self._peers.is_banned(theirs.node_key):
            raise HttpError(403, "this node key is banned here")
        self._peers.called_by(theirs, client or "exempt")
        return {"hello": self._home.hello().message()}

    @Route(
        "POST",
        "/p2p/transaction",
        "Hand in a transfer",
        bucket="p2p",
        body_fields=(TRANSACTION,),
        with_client=True,
        answers={200: object_schema({"txid": HASH, "state": {"enum": ["accepted", "known"]}})},
        errors={403: "The caller is banned."},
    )
    async def transaction(self, transaction: object, client: str | None) -> Answer:
        """Answer POST /p2p/transaction."""
        try:
            transfer = parse_transfer(transaction, self._home.params)
            if self._is_ignored(client):
                raise HttpError(403, _BANNED)
            note_sender(self._peers, client, transfer.txid)
            state = await self._transfers.submit(transfer)
        except RuleViolation as violation:
            if violation.code not in _POLICY:
                self._price_nonsense(client, violation.detail)
            raise
        return {"txid": transfer.txid.hex(), "state": state.value}

    @Route(
        "POST",
        "/p2p/block",
        "Hand in a block in canonical JSON",
        bucket="p2p",
        body_fields=(Field("block", lambda value: value, OBJECT, "The block."),),
        raw_body=True,
        with_client=True,
        answers={
            200: object_schema(
                {
                    "hash": HASH,
                    "state": {"enum": ["connected", "side", "known", "orphan", "early"]},
                }
            )
        },
        errors={403: "The caller is banned."},
        seconds=60,
    )
    async def block(self, body: bytes, client: str | None) -> Answer:
        """Answer POST /p2p/block."""
        if not (body.startswith(_BEFORE) and body.endswith(_AFTER)):
            self._price_nonsense(client, "no block in canonical JSON")
            raise HttpError(400, 'the body must be exactly {"block":…} with the block in canonical JSON')
        wire = body[len(_BEFORE) : -len(_AFTER)]
        if self._is_ignored(client):
            _look_at(wire, self._home.params)
            raise HttpError(403, _BANNED)
        note_sender(self._peers, client, sha256(wire).digest())
        outcome, block_hash = await self._home.ledger.submit(wire)
        if isinstance(outcome, RuleViolation):
            malformed = outcome.code in _MALFORMED
            self._price(client, MALFORMED_SECONDS if malformed else INVALID_SECONDS, outcome.detail)
            raise outcome
        if isinstance(outcome, NotYet):
            if outcome.code is Wait.BUSY:
                raise outcome
            if outcome.code is Wait.ORPHAN:
                self._on_orphan()
            return {"hash": block_hash.hex(), "state": outcome.code.value}
        return {"hash": block_hash.hex(), "state": outcome.value}

    @Route(
        "GET",
        "/p2p/blocks",
        "Canonical blocks in order of height; fewer than asked for where they would be more than 3 MiB",
        bucket="p2p",
        cost=4,
        by_size=MAX_REPLY_BYTES,
        query_fields=(FROM, LIMIT),
        answers={200: object_schema({"blocks": OBJECTS, "height": DECIMAL})},
    )
    async def blocks(self, from_: int, limit: int) -> Answer:
        """Answer GET /p2p/blocks."""
        ledger = self._home.ledger
        wanted = range(from_, min(from_ + limit, ledger.tip.height + 1))
        return Rendered(await ledger.long_reads.ask(partial(_blocks_answer, wanted, ledger.tip, ledger.params)))

    @Route(
        "GET",
        "/p2p/transactions",
        "Waiting transfers in the order in which this node got them",
        bucket="p2p",
        cost=2,
        query_fields=(SINCE, TRANSFERS),
        answers={200: object_schema({"transactions": OBJECTS, "next": DECIMAL})},
    )
    def transactions(self, after: int, limit: int) -> Answer:
        """Answer GET /p2p/transactions."""
        if after > self._transfers.sequence:
            # A number of an earlier run: numbers may begin anew with each.
            after = 0
        found = self._transfers.mempool.since(after, limit)
        last = found[-1].sequence if found else after
        wires = b",".join([entry.transfer.wire for entry in found])
        return Rendered(b'{"ok":true,"transactions":[' + wires + f'],"next":"{last}"}}'.encode())

    @Route(
        "GET",
        "/p2p/peers",
        "Nodes that this one has called and verified, a random sample",
        bucket="p2p",
        query_fields=(PEERS,),
        answers={
            200: object_schema(
                {
                    "peers": {
                        "type": "array",
                        "items": object_schema(
                            {
                                "nodeId": NODE_ID,
                                "endpoint": TEXT,
                                "height": DECIMAL,
                                "lastSeen": DECIMAL,
                            }
                        ),
                    }
                }
            )
        },
    )
    def peers(self, limit: int) -> Answer:
        """Answer GET /p2p/peers."""
        bans, now = self._peers.bans, self._home.now()
        return {
            "peers": [
                {
                    "nodeId": entry.node_id,
                    "endpoint": entry.endpoint,
                    "height": str(entry.height),
                    "lastSeen": str(int(entry.last_seen * 1000)),
                }
                for entry in self._peers.book.sample(
                    min(limit, MAX_PEERS), unless=lambda entry: bans.hides(entry.node_id, entry.endpoint, now)
                )
            ]
        }

    def _is_ignored(self, client: str | None) -> bool:
        return client is not None and self._peers.bans.is_ignored(client, self._home.now())

    def _price_nonsense(self, client: str | None, why: str) -> None:
        """Whoever is not listened to pays no more: others may be behind the same address."""
        if not self._is_ignored(client):
            self._price(client, MALFORMED_SECONDS, why)

    def _price(self, client: str | None, seconds: float, why: str) -> None:
        if client is not None:
            self._peers.bans.ban(posts_name(client), seconds=seconds, now=self._home.now(), why=f"it posted: {why}")


def _look_at(wire: bytes, params: NetworkParams) -> None:
    """Raise RuleViolation for what is no block, if it is as short as other bodies, and so costs no more to read."""
    if len(wire) <= DEFAULT_BODY_CAP:
        parse_block(wire, params)


def _blocks_answer(heights: Iterable[int], tip: ChainPoint, params: NetworkParams, reader: ChainReader) -> bytes:
    """The whole answer of /p2p/blocks, at most 3 MiB but for its first block."""
    wires: list[bytes] = []
    size = 0
    for wire in _wires(heights, params, reader):
        size += len(wire)
        if wires and size > MAX_REPLY_BYTES:
            break
        wires.append(wire)
    return b"".join([b'{"ok":true,"blocks":[', b",".join(wires), f'],"height":"{tip.height}"}}'.encode()])


def _wires(heights: Iterable[int], params: NetworkParams, reader: ChainReader) -> Iterator[bytes]:
    """The canonical blocks at ``heights``, as far as there are any."""
    for height in heights:
        stored = reader.canonical(height)
        if stored is None:
            return
        yield reader.block_header(stored, params).wire(b",".join(reader.bodies(stored)))
