"""The routes that other nodes call (docs/peers.md "Messages")."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import pairwise
from typing import Final

from svcd.chain.block import parse_header, parse_posted_block
from svcd.chain.encoding import MAX_INTEGER
from svcd.chain.errors import NotYet, Refusal, RuleViolation, Wait
from svcd.chain.snapshot import CHUNK_ACCOUNTS, MAX_CHUNKS, RECORD_BYTES
from svcd.chain.transaction import fold_case, parse_transfer
from svcd.chain.transition import ChainPoint
from svcd.chain_schemas import (
    CHAIN_ID,
    COUNT,
    GENESIS_HASH,
    HASH,
    HEADER,
    NETWORK_ID,
    NODE_ID,
    POSTED_BLOCK,
    PRUNE_HEIGHT,
    PRUNED,
    PUBLIC_KEY,
    RECEIPT,
    SIGNATURE,
    SIGNED_TRANSACTION,
    TIME,
    TRANSFER,
    WHOLE_NUMBER,
)
from svcd.interfaces import milliseconds
from svcd.limits import LARGE_BODY, limit
from svcd.net.targets import Endpoint
from svcd.node.chain_manager import ChainManager
from svcd.node.snapshots import Snapshots
from svcd.node.transaction_pool import TransactionPool
from svcd.p2p.announcements import Announcements
from svcd.p2p.bans import BANNED, FLOOD_BAN_SECONDS, MALFORMED_TOKENS, PostBans, address_name
from svcd.p2p.branch_push import ShownHeaders
from svcd.p2p.client import (
    ASKED,
    KNOWN,
    MAX_BLOCKS,
    MAX_BRANCH_HEADERS,
    MAX_HASHES,
    MAX_HEADERS,
    MAX_LOCATOR,
    MAX_PEERS,
    MAX_REPLY_BYTES,
    MAX_TRANSACTIONS,
    MORE,
    WANTED,
)
from svcd.p2p.handshake import Fault, HelloRefused, LatestHellos, LocalNode, check_hello, parse_hello
from svcd.p2p.peers import Peers
from svcd.store.chain_store import ChainReader
from svcd.store.snapshot_file import SnapshotDamaged, SnapshotFile
from svcd.web.connections import DEFAULT_BODY_CAP
from svcd.web.field_types import Bool, Custom, Int, Schema, Text, described, with_example
from svcd.web.rate_limits import LOOKUP, Surcharge
from svcd.web.responses import HttpError, Renderable, Response
from svcd.web.routes import Field, Route, named_object, object_schema

BODY_CAPS: Final = {
    (method.encode(), path.encode()): limit(size, f"body of {method} {path}", "bytes", LARGE_BODY)
    for method, path, size in (
        ("POST", "/p2p/transaction", 32 * 1024),
        ("POST", "/p2p/block", 2 * 1024 * 1024),
        ("POST", "/p2p/blocks", 40 * 1024),
        ("POST", "/p2p/branch", 128 * 1024),
    )
}
"""Body size limits, in bytes, of the routes that need more than the default."""
DEFAULT_PEERS: Final = 50
_BEFORE, _AFTER = b'{"block":', b"}"
_POLICY: Final = {
    *(Refusal.TIMESTAMP, Refusal.NONCE, Refusal.FEE, Refusal.POOL),
    *(Refusal.BALANCE, Refusal.SENDER_MINIMUM, Refusal.RECIPIENT_MINIMUM),
}
"""Reasons to refuse an honest peer's transfer: mempools differ from node to node."""
_OCTETS: Final = "application/octet-stream"
_NO_SNAPSHOT: Final = "There is no snapshot of this block here; `/p2p/status` lists those that there are."
_HEX_HASH: Final = re.compile("[0-9a-f]{64}")

# Schemas

_VERSION: Final[Schema] = {"type": "string", "maxLength": 32, "pattern": "^[ -~]*$"}
_WORK: Final[Schema] = {"type": "string", "pattern": "^(0|[1-9][0-9]*)$", "examples": ["48"]}
_ENDPOINT_TEXT: Final[Schema] = {"type": "string", "examples": ["https://node.example.org"]}
_CLAIMS: Final[Mapping[str, Schema]] = {
    "softwareVersion": with_example(_VERSION, "0.0.1"),
    "protocolVersion": with_example(_VERSION, "1.0"),
    "networkId": NETWORK_ID,
    "chainId": CHAIN_ID,
    "genesisHash": GENESIS_HASH,
    "nodeId": NODE_ID.schema,
    "nodePublicKey": PUBLIC_KEY,
    "height": WHOLE_NUMBER,
    "hash": HASH,
    "timestamp": TIME,
    "endpoint": _ENDPOINT_TEXT,
}
_HELLO: Final = named_object("Hello", {**_CLAIMS, "signature": SIGNATURE}, about="The signed hello of a node.")
_SNAPSHOT: Final = named_object(
    "SnapshotClaim",
    {"height": WHOLE_NUMBER, "hash": HASH, "digest": HASH},
    about="A snapshot of the state that a node serves: its block, and the SHA-256 of its manifest in canonical JSON.",
)
_STATUS: Final = named_object(
    "PeerStatus",
    {
        **_CLAIMS,
        "cumulativeWork": described(_WORK, "The work of the whole chain."),
        "pruneHeight": PRUNE_HEIGHT,
        "peers": described(COUNT, "How many peers the node has."),
        "time": TIME,
        "changesHash": described(HASH, "Of the changes of the list of producers."),
        "snapshots": {"type": "array", "items": _SNAPSHOT},
    },
    optional=("changesHash",),
    about="What a node claims its chain to be, unsigned; changesHash only where the rules have a list of producers.",
)
_MANIFEST: Final = named_object(
    "SnapshotManifest",
    {
        "chunks": {
            "type": "array",
            "items": {
                "type": "string",
                "pattern": "^(0|[1-9][0-9]{0,2}):(0|[1-9][0-9]{0,4}):[0-9a-f]{64}$",
                "examples": ["0:7:" + 64 * "0"],
            },
            "minItems": 1,
            "maxItems": MAX_CHUNKS,
        },
        "hash": HASH,
        "height": WHOLE_NUMBER,
    },
    about="The chunks of all accounts after a block: depth in the state tree, number of accounts, and root of each.",
)
_PEER: Final = named_object(
    "KnownPeer",
    {"nodeId": NODE_ID.schema, "endpoint": _ENDPOINT_TEXT, "height": WHOLE_NUMBER, "lastSeen": TIME},
)
_HEADERS_REPLY: Final = named_object(
    "HeadersAnswer",
    {
        "headers": {"type": "array", "items": HEADER},
        "from": described(WHOLE_NUMBER, "The height of the first header, or of the one that would be next."),
        "height": described(WHOLE_NUMBER, "The height of the newest block."),
    },
)
_BLOCKS_REPLY: Final = named_object(
    "BlocksAnswer",
    {
        "blocks": {"type": "array", "items": POSTED_BLOCK},
        "height": described(WHOLE_NUMBER, "The height of the newest block."),
    },
)


_STATES: Final = {
    "connected": "the block is on the chain now",
    "side": "it is valid so far, on a branch with less work",
    "known": "the node has the block",
    ASKED: "the node fetches the block, from the sender or from another peer",
    WANTED: "the sender should post the block, or those of a branch in order",
    MORE: "the branch has not yet shown more work than the tip, or than the headers from which the node started",
    "orphan": "the parent of the block, or of the first header, is unknown; the node asks its peers for their chains",
    "early": "the slot of the block has not begun",
    "deep": "the block is too far below the tip to be stored, unless `POST /p2p/branch` shows more work",
}


def _state(*names: str) -> Schema:
    told = "; ".join([f"`{name}`: {_STATES[name]}" for name in names])
    return {"type": "string", "enum": [*names], "description": f"{told}."}


# Fields


def _query_number(name: str, minimum: int, maximum: int, default: int, description: str) -> Field:
    """An integer from ``minimum`` to ``maximum`` in the query."""
    return Field(name, Int(minimum, maximum), description, default=default)


def _hashes(maximum: int, value: object) -> list[bytes]:
    found = value if type(value) is list and len(value) <= maximum else []
    hashes = [bytes.fromhex(text) for text in found if type(text) is str and _HEX_HASH.fullmatch(text)]
    if hashes and len(hashes) == len(found):
        return hashes
    raise ValueError(f"must be an array of 1 to {maximum} block hashes, each 64 lower-case hex characters")


def _hash_list(name: str, maximum: int, description: str) -> Field:
    schema = {"type": "array", "items": HASH, "minItems": 1, "maxItems": maximum}
    return Field(name, Custom(schema, partial(_hashes, maximum)), description)


def _endpoint(text: str) -> Endpoint | None:
    return Endpoint(text) if text else None


_ENDPOINT: Final = Text(convert=_endpoint, more={"examples": ["https://node.example.org"]})
_FROM: Final = _query_number("from", 0, MAX_INTEGER, 0, "The height of the first block.")
_SNAPSHOT_HEIGHT: Final = Field("height", Int(0, MAX_INTEGER), "The height of the snapshot's block.")
_CHUNK_INDEX: Final = Field("index", Int(0, MAX_CHUNKS - 1), "The number of the chunk, from 0.")
_HOW_MANY: Final = "How many headers to return at most."


_NEXT: Final = described(
    WHOLE_NUMBER, "The `after` of the next request; it increases across restarts too, so that no transfer is missed."
)


def _some_headers(value: object) -> list[object]:
    if type(value) is list and 1 <= len(value) <= MAX_BRANCH_HEADERS:
        return value
    raise ValueError(f"must be an array of 1 to {MAX_BRANCH_HEADERS} headers")


_HEADERS: Final = Field(
    "headers",
    Custom({"type": "array", "items": HEADER, "minItems": 1, "maxItems": MAX_BRANCH_HEADERS}, _some_headers),
    "Headers in order of height, from the child of a known block, or of the last header of an earlier post, on.",
)
_CALL_BACK: Final = Field(
    "callBack",
    Bool(),
    "Whether the caller wants to be called at the endpoint of its hello, to learn whether it can be reached.",
    default=False,
)


def ban_flooding_client(routes: "PeerRoutes", client: str) -> None:
    """Ban the posts of a client that keeps sending malformed ones."""
    routes.post_bans.ban(client, seconds=FLOOD_BAN_SECONDS, why="malformed posts for a whole minute")


_post: Final = partial(
    Route,
    "POST",
    bucket="p2p",
    malformed_tokens=MALFORMED_TOKENS,
    on_flood=ban_flooding_client,
    with_client=True,
    errors={403: "The caller is banned."},
)
"""A route to which a sender posts, with the price of such posts (docs/peers.md "Prices")."""
_large: Final = partial(Route, bucket="p2p", cost=4, by_size=MAX_REPLY_BYTES, cancellable=True)
"""A route whose response has up to 3 MiB of headers or blocks."""


class PeerRoutes:
    """Routes for handshakes, gossip, blocks and transfers that are posted, and the mempool."""

    def __init__(
        self,
        peers: Peers,
        *,
        transaction_pool: TransactionPool,
        announcements: Announcements,
        snapshots: Snapshots,
        post_bans: PostBans,
    ) -> None:
        self._peers = peers
        self._snapshots = snapshots
        self._node: LocalNode = peers.node
        self._transaction_pool = transaction_pool
        self._announcements = announcements
        self._shown_headers = ShownHeaders(peers.node.chain_manager)
        self._hellos = LatestHellos()
        self.post_bans = post_bans

    @Route(
        "GET",
        "/p2p/status",
        "Height, hash and work of this node's tip, as it claims",
        bucket="p2p",
        answers={200: object_schema({"status": _STATUS})},
    )
    def status(self) -> Renderable:
        """Answer GET /p2p/status."""
        node, now = self._node, milliseconds(self._node.clock)
        # On a network on which everybody may make blocks there is nothing to compare.
        changes = {"changesHash": node.params.changes_hash.hex()} if node.params.producers else {}
        claims = node.key.unsigned(node.params, node.chain_manager.tip, now).fields()
        status = {
            **claims,
            "cumulativeWork": str(node.chain_manager.tip.work),
            "pruneHeight": str(node.chain_manager.prune_height),
            "peers": len(self._peers.all()),
            "time": str(now),
            **changes,
            "snapshots": [
                {
                    "height": str(file.manifest.height),
                    "hash": file.manifest.hash.hex(),
                    "digest": file.digest.hex(),
                }
                for file in self._snapshots.served
            ],
        }
        return {"status": status}

    @_post(
        "/p2p/hello",
        "Exchange signed hellos",
        query_fields=(_CALL_BACK,),
        body_fields=(Field("hello", Custom(_HELLO), "The signed hello of the caller."),),
        answers={200: object_schema({"hello": _HELLO})},
        with_host=True,
    )
    def hello(self, call_back: bool, hello: object, client: str | None, host: str) -> Renderable:
        """Answer POST /p2p/hello.

        A hello is signed, unlike other posts, so a ban of posts from its address does not keep it out.
        """
        try:
            theirs = parse_hello(hello)
            if client is not None and self._peers.bans.is_banned(address_name(client), self._node.now()):
                raise HttpError(403, BANNED)
            now = milliseconds(self._node.clock)
            check_hello(theirs, self._node.params, own=self._node.key.node_id, now=now)
            self._hellos.take(theirs, now)
        except HelloRefused as refused:
            tokens = MALFORMED_TOKENS if refused.fault is Fault.FORMAT else 0.0
            raise HttpError(400, refused.detail, tokens=tokens) from refused
        if self._peers.is_banned(theirs.node_id):
            raise HttpError(403, "this node key is banned here")
        self._peers.hello_received(theirs, client or "exempt", host=host, call_back=call_back)
        return {"hello": self._node.hello().message()}

    @_post(
        "/p2p/transaction",
        "Submit a transfer",
        body_fields=(Field("transaction", Custom(SIGNED_TRANSACTION, fold_case), "The signed transfer."),),
        with_charge=True,
        surcharges=(LOOKUP,),
        answers={200: RECEIPT},
    )
    async def transaction(self, transaction: object, client: str | None, charge: Callable[[float], None]) -> Renderable:
        """Answer POST /p2p/transaction."""
        try:
            transfer = parse_transfer(transaction, self._node.params)
            if self.post_bans.refuses(client):
                raise HttpError(403, BANNED)
            self._peers.mark_sender(client, transfer.txid)
            state = await self._transaction_pool.submit(transfer, on_lookup=partial(charge, LOOKUP.tokens))
        except RuleViolation as violation:
            tokens = 0.0 if violation.code in _POLICY else MALFORMED_TOKENS
            raise HttpError(400, violation.detail, tokens=tokens) from violation
        return {"txid": transfer.txid.hex(), "state": state.value}

    @_post(
        "/p2p/block",
        "Submit a block",
        body_fields=(Field("block", Custom(POSTED_BLOCK), "The block."),),
        raw_body=True,
        answers={
            200: object_schema({"hash": HASH, "state": _state("connected", "side", "known", "orphan", "early", "deep")})
        },
        seconds=60,
    )
    async def block(self, body: bytes, client: str | None) -> Renderable:
        """Answer POST /p2p/block.

        Any encoding as JSON will do. The verifier's threads parse it, since a full block takes long.
        """
        if self.post_bans.refuses(client):
            self._check_short(body)
            raise HttpError(403, BANNED)
        if body.startswith(_BEFORE) and body.endswith(_AFTER):
            # As nodes send it: then the sender is known to have it before the block is passed on.
            self._peers.mark_sender(client, sha256(body[len(_BEFORE) : -len(_AFTER)]).digest())
        outcome, block_hash = await self._node.chain_manager.submit_posted(body, self._peers.name_of(client))
        if isinstance(outcome, RuleViolation):
            tokens = self.post_bans.penalise_invalid_block(client, outcome) if block_hash else MALFORMED_TOKENS
            raise HttpError(400, outcome.detail, tokens=tokens)
        if isinstance(outcome, NotYet):
            if outcome.code is Wait.BUSY:
                raise outcome
            if outcome.code is Wait.ORPHAN:
                self._peers.poll_all()
            return {"hash": block_hash.hex(), "state": outcome.code.value}
        return {"hash": block_hash.hex(), "state": outcome.value}

    @_post(
        "/p2p/header",
        "Announce a new block by its header, which is the whole block if it has no transfers",
        body_fields=(
            Field("header", Custom(HEADER), "The header of the block."),
            Field("endpoint", _ENDPOINT, 'Where the caller serves the block; "" for nowhere.', default=None),
        ),
        answers={200: object_schema({"hash": HASH, "state": _state(KNOWN, ASKED, WANTED, "orphan", "early", "deep")})},
    )
    async def header(self, header: object, endpoint: Endpoint | None, client: str | None) -> Renderable:
        """Answer POST /p2p/header."""
        if self.post_bans.refuses(client):
            raise HttpError(403, BANNED)
        try:
            parsed = parse_header(header, self._node.params)
        except RuleViolation as violation:
            raise HttpError(400, violation.detail, tokens=MALFORMED_TOKENS) from violation
        peer = None if endpoint is None else self._peers.get(endpoint)
        sender = peer if peer is not None and peer.may_be_at(client) else None
        try:
            state = await self._announcements.receive(parsed, sender)
        except RuleViolation as violation:
            tokens = self.post_bans.penalise_invalid_block(client, violation)
            raise HttpError(400, violation.detail, tokens=tokens) from violation
        return {"hash": parsed.hash.hex(), "state": state}

    @_post(
        "/p2p/branch",
        "Show by headers that a branch has more work than the tip, before its blocks are posted",
        body_fields=(_HEADERS,),
        with_charge=True,
        surcharges=(Surcharge(1, "for each header that has to be verified"),),
        answers={200: object_schema({"state": _state(WANTED, MORE, "orphan", "early")})},
    )
    async def branch(self, headers: list[object], client: str | None, charge: Callable[[float], None]) -> Renderable:
        """Answer POST /p2p/branch.

        Each header that has to be verified costs a token, as a block does: its work takes as long.
        """
        if self.post_bans.refuses(client):
            raise HttpError(403, BANNED)
        self._shown_headers.check_free()
        try:
            parsed = [parse_header(value, self._node.params) for value in headers]
        except RuleViolation as violation:
            raise HttpError(400, violation.detail, tokens=MALFORMED_TOKENS) from violation
        if any(header.parent_hash != before.hash for before, header in pairwise(parsed)):
            sentence = "the headers must be those of one chain, each the child of the one before"
            raise HttpError(400, sentence, tokens=MALFORMED_TOKENS)
        try:
            state = await self._shown_headers.receive(parsed, charge)
        except RuleViolation as violation:
            tokens = self.post_bans.penalise_invalid_block(client, violation)
            raise HttpError(400, violation.detail, tokens=tokens) from violation
        return {"state": state}

    @Route(
        "GET",
        "/p2p/transactions",
        "Waiting transfers in the order in which this node got them",
        bucket="p2p",
        cost=2,
        query_fields=(
            _query_number("after", 0, MAX_INTEGER, 0, "The `next` of the previous answer."),
            _query_number("limit", 1, MAX_TRANSACTIONS, MAX_TRANSACTIONS, "How many transfers to return at most."),
        ),
        answers={200: object_schema({"transactions": {"type": "array", "items": TRANSFER}, "next": _NEXT})},
    )
    def transactions(self, after: int, limit: int) -> Renderable:
        """Answer GET /p2p/transactions."""
        if after > self._transaction_pool.sequence:
            # The number is of an earlier run: numbers may begin again with each run.
            after = 0
        found = self._transaction_pool.mempool.since(after, limit)
        last = found[-1].sequence if found else after
        wires = b",".join([entry.transfer.wire for entry in found])
        return Response(b'{"ok":true,"transactions":[' + wires + f'],"next":"{last}"}}'.encode())

    @Route(
        "GET",
        "/p2p/peers",
        "Nodes that this one has called and verified, a random sample",
        bucket="p2p",
        query_fields=(
            _query_number(
                "limit", 1, MAX_INTEGER, DEFAULT_PEERS, "How many peers to return at most; more than 100 is 100."
            ),
        ),
        answers={200: object_schema({"peers": {"type": "array", "items": _PEER}})},
    )
    def peers(self, limit: int) -> Renderable:
        """Answer GET /p2p/peers."""
        bans, now = self._peers.bans, self._node.now()
        return {
            "peers": [
                {
                    "nodeId": entry.node_id,
                    "endpoint": entry.endpoint,
                    "height": str(entry.height),
                    "lastSeen": str(self._node.unix_milliseconds(entry.last_seen)),
                }
                for entry in self._peers.book.sample(
                    min(limit, MAX_PEERS), unless=lambda entry: bans.forbids(entry.node_id, entry.endpoint, now)
                )
            ]
        }

    def _check_short(self, body: bytes) -> None:
        """Raise HttpError for what is no block, if it is as short as other bodies, and so costs no more to read."""
        if len(body) <= DEFAULT_BODY_CAP:
            try:
                parse_posted_block(body, self._node.params)
            except RuleViolation as violation:
                raise HttpError(400, violation.detail, tokens=MALFORMED_TOKENS) from violation


class BlockRoutes:
    """Routes for headers and blocks; every answer is read in a thread, from one commit."""

    def __init__(self, chain_manager: ChainManager) -> None:
        self._chain_manager = chain_manager

    @_large(
        "GET",
        "/p2p/headers",
        "Canonical headers in order of height, at most 3 MiB",
        query_fields=(_FROM, _query_number("limit", 1, MAX_HEADERS, MAX_HEADERS, _HOW_MANY)),
        answers={200: _HEADERS_REPLY},
    )
    async def headers(self, from_: int, limit: int) -> Renderable:
        """Answer GET /p2p/headers."""
        return await self._ask(partial(_headers_answer, from_, limit))

    @_large(
        "POST",
        "/p2p/headers",
        "Canonical headers above the first hash of a locator that is canonical, or else the genesis, at most 3 MiB",
        body_fields=(
            _hash_list("locator", MAX_LOCATOR, "Hashes of blocks of the asking node, the newest first."),
            Field("limit", Int(1, MAX_HEADERS), _HOW_MANY, default=MAX_HEADERS),
        ),
        answers={200: _HEADERS_REPLY},
    )
    async def headers_after(self, locator: list[bytes], limit: int) -> Renderable:
        """Answer POST /p2p/headers."""

        def answer(tip: ChainPoint, reader: ChainReader) -> bytes:
            return _headers_answer(reader.last_common(locator) + 1, limit, tip, reader)

        return await self._ask(answer)

    @_large(
        "GET",
        "/p2p/blocks",
        "Canonical blocks in order of height; fewer than asked for where they would be more than 3 MiB",
        query_fields=(_FROM, _query_number("limit", 1, MAX_BLOCKS, MAX_BLOCKS, "How many blocks to return at most.")),
        answers={200: _BLOCKS_REPLY},
        errors={410: "This node has only later blocks."},
        error_members=PRUNED,
    )
    async def blocks(self, from_: int, limit: int) -> Renderable:
        """Answer GET /p2p/blocks."""
        wanted = range(from_, min(from_ + limit, self._chain_manager.tip.height + 1))
        return await self._ask(partial(_blocks_answer, wanted))

    @_large(
        "POST",
        "/p2p/blocks",
        "Blocks by hash, canonical or not, in their order, at most 3 MiB; those that are not here are left out",
        body_fields=(_hash_list("hashes", MAX_HASHES, "The blocks to return."),),
        answers={200: _BLOCKS_REPLY},
    )
    async def blocks_by_hash(self, hashes: list[bytes]) -> Renderable:
        """Answer POST /p2p/blocks."""
        return await self._ask(partial(_blocks_answer, hashes))

    async def _ask(self, question: Callable[[ChainPoint, ChainReader], bytes]) -> Renderable:
        return Response(await self._chain_manager.long_reads.ask(partial(question, self._chain_manager.tip)))


class SnapshotRoutes:
    """Routes for the state after a block, in chunks; a node that starts needs no earlier block then."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    @_large(
        "GET",
        "/p2p/snapshot/{height}",
        "What the snapshot of the block at a height consists of",
        path_fields=(_SNAPSHOT_HEIGHT,),
        answers={200: object_schema({"snapshot": _MANIFEST})},
        errors={404: _NO_SNAPSHOT},
    )
    def manifest(self, height: int) -> Renderable:
        """Answer GET /p2p/snapshot/{height}."""
        return Response(b'{"ok":true,"snapshot":' + self._at(height).wire + b"}")

    @_large(
        "GET",
        "/p2p/snapshot/{height}/{index}",
        f"A chunk of a snapshot: {RECORD_BYTES} bytes for each account, at most {CHUNK_ACCOUNTS} accounts",
        path_fields=(_SNAPSHOT_HEIGHT, _CHUNK_INDEX),
        answers={200: {"type": "string", "format": "binary"}},
        media_type=_OCTETS,
        errors={404: f"{_NO_SNAPSHOT} Or it has fewer chunks."},
    )
    async def chunk(self, height: int, index: int) -> Renderable:
        """Answer GET /p2p/snapshot/{height}/{index}."""
        file = self._at(height)
        if index >= len(file.manifest.chunks):
            raise HttpError(404, f"this snapshot has the chunks 0 to {len(file.manifest.chunks) - 1}")
        try:
            return Response(await self._snapshots.chunk(file, index), content_type=_OCTETS.encode())
        except (SnapshotDamaged, OSError) as error:
            # Only the operator needs to know which file it was.
            raise HttpError(404, "this snapshot can no longer be read; ask for its status again") from error

    def _at(self, height: int) -> SnapshotFile:
        file = self._snapshots.at(height)
        if file is None:
            raise HttpError(404, "there is no snapshot of this block here; /p2p/status lists those that there are")
        return file


def _headers_answer(first: int, limit: int, tip: ChainPoint, reader: ChainReader) -> bytes:
    return _rendered("headers", reader.headers(first, limit=limit), f'"from":"{first}","height":"{tip.height}"')


def _blocks_answer(wanted: Iterable[int] | Iterable[bytes], tip: ChainPoint, reader: ChainReader) -> bytes:
    return _rendered("blocks", _wires(wanted, reader), f'"height":"{tip.height}"')


def _rendered(name: str, items: Iterable[bytes], members: str) -> bytes:
    return b'{"ok":true,"%s":[%s],%s}' % (name.encode(), b",".join(_bounded(items)), members.encode())


def _bounded(items: Iterable[bytes]) -> Iterator[bytes]:
    """The first of ``items``, and further ones up to 3 MiB in all."""
    size = 0
    for index, item in enumerate(items):
        size += len(item)
        if index and size > MAX_REPLY_BYTES:
            return
        yield item


def _wires(wanted: Iterable[int] | Iterable[bytes], reader: ChainReader) -> Iterator[bytes]:
    """The canonical JSON of blocks by height or hash; those that are not stored are left out.

    Raises Pruned for a height below the prune height. A block of such a height is left out if it is named by its hash:
    other blocks that were asked for with it may be here.
    """
    prune_height = reader.prune_height()
    for name in wanted:
        stored = reader.canonical(name) if isinstance(name, int) else reader.stored(name)
        if stored is not None and (isinstance(name, int) or stored.point.height >= prune_height):
            yield reader.wire(stored)
