"""What we answer other nodes (docs/http.md "Peers")."""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from svcd.chain.block import parse_posted_block
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.transaction import parse_transfer
from svcd.node.transfers import Transfers
from svcd.p2p.bans import BANNED, MALFORMED_TOKENS, PostBans, address_name, ban_persistent
from svcd.p2p.fields import (
    CALL_BACK,
    CLAIMS,
    DECIMAL,
    GREETING,
    HASH,
    HELLO,
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
from svcd.p2p.handshake import Fault, HelloRefused, LatestHellos, LocalNode, check_hello, parse_hello
from svcd.p2p.peers import Peers
from svcd.p2p.relay import note_sender
from svcd.ports import milliseconds
from svcd.web.answers import Answer, Rendered
from svcd.web.errors import HttpError
from svcd.web.limits import DEFAULT_BODY_CAP
from svcd.web.routing import Field, Route, object_schema

BODY_CAPS: Final = {(b"POST", b"/p2p/transaction"): 32 * 1024, (b"POST", b"/p2p/block"): 2 * 1024 * 1024}
"""How many bytes the routes take that need more than others."""
_BEFORE, _AFTER = b'{"block":', b"}"
_POLICY: Final = {Refusal.TIMESTAMP, Refusal.NONCE, Refusal.FEE, Refusal.BALANCE, Refusal.POOL}
"""Why an honest peer's transfer may be refused here: what waits differs from node to node."""


class PeerRoutes:
    """Signed handshakes, and posts of blocks and transfers."""

    def __init__(
        self,
        peers: Peers,
        *,
        transfers: Transfers,
        on_orphan: Callable[[], None],
        on_sent: Callable[[bytes, str | None], None],
        post_bans: PostBans,
    ) -> None:
        """Make them; ``on_sent`` is called with the hash of each block that is posted, and the client."""
        self._peers = peers
        self._home: LocalNode = peers.home
        self._transfers = transfers
        self._hellos = LatestHellos()
        self._on_orphan = on_orphan
        self._on_sent = on_sent
        self.post_bans = post_bans

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
        malformed_tokens=MALFORMED_TOKENS,
        on_persistence=ban_persistent,
        query_fields=(CALL_BACK,),
        body_fields=(GREETING,),
        with_client=True,
        answers={200: object_schema({"hello": HELLO})},
        errors={403: "The caller is banned."},
    )
    async def hello(self, call_back: bool, hello: object, client: str | None) -> Answer:
        """Answer POST /p2p/hello.

        A hello is signed, unlike all else that is posted: no neighbour's price keeps it from being heard.
        """
        try:
            theirs = parse_hello(hello)
            if client is not None and self._peers.bans.is_banned(address_name(client), self._home.now()):
                raise HttpError(403, BANNED)
            check_hello(theirs, self._home.params, own=self._home.key.node_id, now=milliseconds(self._home.clock))
            self._hellos.take(theirs)
        except HelloRefused as refused:
            tokens = MALFORMED_TOKENS if refused.fault is Fault.FORMAT else 0.0
            raise HttpError(400, refused.detail, tokens=tokens) from refused
        if self._peers.is_banned(theirs.node_key):
            raise HttpError(403, "this node key is banned here")
        self._peers.called_by(theirs, client or "exempt", call_back=call_back)
        return {"hello": self._home.hello().message()}

    @Route(
        "POST",
        "/p2p/transaction",
        "Hand in a transfer",
        bucket="p2p",
        malformed_tokens=MALFORMED_TOKENS,
        on_persistence=ban_persistent,
        body_fields=(TRANSACTION,),
        with_client=True,
        answers={200: object_schema({"txid": HASH, "state": {"enum": ["accepted", "known"]}})},
        errors={403: "The caller is banned."},
    )
    async def transaction(self, transaction: object, client: str | None) -> Answer:
        """Answer POST /p2p/transaction."""
        try:
            transfer = parse_transfer(transaction, self._home.params)
            if self.post_bans.ignores(client):
                raise HttpError(403, BANNED)
            note_sender(self._peers, client, transfer.txid)
            state = await self._transfers.submit(transfer)
        except RuleViolation as violation:
            tokens = 0.0 if violation.code in _POLICY else MALFORMED_TOKENS
            raise HttpError(400, violation.detail, tokens=tokens) from violation
        return {"txid": transfer.txid.hex(), "state": state.value}

    @Route(
        "POST",
        "/p2p/block",
        "Hand in a block",
        bucket="p2p",
        malformed_tokens=MALFORMED_TOKENS,
        on_persistence=ban_persistent,
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
        """Answer POST /p2p/block.

        Any spelling of JSON will do; it is read in the verifier's threads, since a full block takes long.
        """
        if self.post_bans.ignores(client):
            self._check_short(body)
            raise HttpError(403, BANNED)
        if body.startswith(_BEFORE) and body.endswith(_AFTER):
            # As nodes send it: then the sender is known to have it before the block is passed on.
            note_sender(self._peers, client, sha256(body[len(_BEFORE) : -len(_AFTER)]).digest())
        outcome, block_hash = await self._home.ledger.submit_posted(body)
        if isinstance(outcome, RuleViolation):
            tokens = self.post_bans.price_of_block(client, outcome.detail) if block_hash else MALFORMED_TOKENS
            raise HttpError(400, outcome.detail, tokens=tokens)
        self._on_sent(block_hash, client)
        if isinstance(outcome, NotYet):
            if outcome.code is Wait.BUSY:
                raise outcome
            if outcome.code is Wait.ORPHAN:
                self._on_orphan()
            return {"hash": block_hash.hex(), "state": outcome.code.value}
        return {"hash": block_hash.hex(), "state": outcome.value}

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

    def _check_short(self, body: bytes) -> None:
        """Raise HttpError for what is no block, if it is as short as other bodies, and so costs no more to read."""
        if len(body) <= DEFAULT_BODY_CAP:
            try:
                parse_posted_block(body, self._home.params)
            except RuleViolation as violation:
                raise HttpError(400, violation.detail, tokens=MALFORMED_TOKENS) from violation
