"""Remote nodes with scripted replies: honest unless a test overrides a path."""

import json
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field

from svcd.chain.block import Block
from svcd.chain.encoding import canonical
from svcd.chain.snapshot import Chunk, Manifest, cut, pack_account
from svcd.chain.state_root import leaf_hash, subtree_root
from svcd.chain.transaction import Transfer
from svcd.chain.transition import ChainPoint
from svcd.interfaces import milliseconds
from svcd.p2p.handshake import NodeKey
from svcd.p2p.transport import PeerReply, PeerRequest
from tests.chains import ChainBuilder, key_of
from tests.p2p.memory_transport import Answer, Called, MemoryTransport

Script = Callable[[Called], Answer]


def ok(**members: object) -> PeerReply:
    """A success with these members."""
    return PeerReply(200, canonical({"ok": True, **members}))


def refused(status: int = 400, error: str = "no") -> PeerReply:
    """An error."""
    return PeerReply(status, canonical({"ok": False, "error": error}))


def blocks_reply(blocks: Sequence[Block | bytes], height: int = 0) -> PeerReply:
    """A reply of /p2p/blocks."""
    wires = b",".join(block if isinstance(block, bytes) else block.wire() for block in blocks)
    return PeerReply(200, b'{"ok":true,"blocks":[' + wires + b'],"height":"%d"}' % height)


def headers_reply(blocks: Sequence[Block], first: int, height: int) -> PeerReply:
    """A reply of /p2p/headers."""
    wires = b",".join(block.header.wire() for block in blocks)
    return PeerReply(200, b'{"ok":true,"headers":[' + wires + b'],"from":"%d","height":"%d"}' % (first, height))


def snapshot_of(builder: ChainBuilder, block: Block, most: int) -> tuple[Manifest, list[bytes]]:
    """Manifest and chunks of the state after a block, in chunks of at most ``most`` accounts."""
    rows = [(key, a.balance, a.nonce, a.held_since) for key, a in sorted(builder.accounts_after(block).items())]
    chunks: list[Chunk] = []
    records: list[bytes] = []
    for depth, begin, end in cut([key for key, *_ in rows], most):
        hashed = [(int.from_bytes(row[0], "big"), leaf_hash(*row)) for row in rows[begin:end]]
        chunks.append(Chunk(depth, end - begin, subtree_root(hashed, depth)))
        records.append(b"".join([pack_account(*row) for row in rows[begin:end]]))
    return Manifest(block.header.height, block.header.hash, tuple(chunks)), records


def silent(_called: Called) -> None:
    """A script that never answers."""


@define(eq=False, kw_only=True)
class RemoteNode:
    """A node that has a chain, a key and an endpoint, and answers as it should, but where ``scripts`` say otherwise."""

    transport: MemoryTransport
    endpoint: str
    builder: ChainBuilder
    blocks: list[Block] = field(factory=list)
    """Its canonical chain from height 1 on."""
    key: NodeKey = field()
    names: str = field()
    """The endpoint that its hello names."""
    scripts: dict[str, Script] = field(factory=dict)
    """By path, what is answered instead."""
    work: int | None = None
    """The work that it claims to have, if that is not true."""
    height: int | None = None
    """The height that it claims to have, if that is not true."""
    prune_height: int = 0
    """The height from which on it has blocks."""
    shown_prune_height: int | None = None
    """The one that it claims, if that is not true."""
    changes_hash: bytes | None = None
    """The hash of the changes of producers that it tells, if it tells one."""
    snapshots: dict[int, tuple[Manifest, list[bytes]]] = field(factory=dict)
    """By height, the snapshots that it serves: manifest and chunks."""
    acquaintances: list[str] = field(factory=list)
    """Endpoints that it hands out."""
    pool: list[Transfer] = field(factory=list)
    got: list[tuple[str, Any]] = field(factory=list)
    """What it was sent, by path."""

    @key.default
    def _key(self) -> NodeKey:
        return NodeKey(key_of(self.endpoint).seed, self.endpoint)

    @names.default
    def _names(self) -> str:
        return self.endpoint

    @property
    def host(self) -> str:
        """The host in its endpoint."""
        return str(urlsplit(self.endpoint).hostname)

    @property
    def tip(self) -> ChainPoint:
        """The end of its chain."""
        return self.builder.point_after(self.blocks[-1] if self.blocks else None)

    def answer(self, request: PeerRequest) -> Answer:
        called = Called(self.endpoint, request, self.transport.clock.seconds())
        script = self.scripts.get(called.path) or self.scripts.get("")
        if request.body is not None:
            fields = json.loads(request.body)
            self.got.append((called.path, fields if len(fields) > 1 else next(iter(fields.values()))))
        return script(called) if script else self.honest(called)

    def honest(self, called: Called) -> Answer:
        """What an honest node answers."""
        match called.path:
            case "/p2p/hello":
                return ok(hello=self.hello().message())
            case "/p2p/status":
                work = self.tip.work if self.work is None else self.work
                height = self.tip.height if self.height is None else self.height
                first = self.prune_height if self.shown_prune_height is None else self.shown_prune_height
                chain = {"height": str(height), "hash": self.tip.hash.hex(), "cumulativeWork": str(work)}
                changes = {} if self.changes_hash is None else {"changesHash": self.changes_hash.hex()}
                return ok(status={**chain, **changes, "pruneHeight": str(first), "snapshots": self._claims()})
            case "/p2p/blocks" if called.request.body is None:
                first, limit = called.query["from"], called.query["limit"]
                return blocks_reply(self.blocks[first - 1 : first - 1 + limit], self.tip.height)
            case "/p2p/blocks":
                held = {
                    block.header.hash.hex(): block for block in self.blocks if block.header.height >= self.prune_height
                }
                return blocks_reply([held[name] for name in self._body(called)["hashes"] if name in held])
            case "/p2p/headers":
                return self._headers(**self._body(called))
            case "/p2p/header":
                return ok(hash="00" * 32, state="wanted")
            case "/p2p/peers":
                return ok(peers=[{"endpoint": endpoint} for endpoint in self.acquaintances])
            case "/p2p/transactions":
                after = called.query["after"]
                found = [json.loads(transfer.wire) for transfer in self.pool[after:]]
                return ok(transactions=found, next=str(max(after, len(self.pool))))
            case "/p2p/transaction":
                return ok(txid="00" * 32, state="accepted")
            case "/p2p/block":
                return ok(hash="00" * 32, state="connected")
            case path if path.startswith("/p2p/snapshot/"):
                return self._snapshot(*map(int, path.removeprefix("/p2p/snapshot/").split("/")))
        raise AssertionError(f"nobody answers {called.path}")

    def serve_snapshot(self, block: Block, most: int) -> Manifest:
        """Serve the snapshot of a block; gives its manifest."""
        self.snapshots[block.header.height] = snapshot_of(self.builder, block, most)
        return self.snapshots[block.header.height][0]

    def _claims(self) -> list[dict[str, str]]:
        return [
            {"height": str(height), "hash": manifest.hash.hex(), "digest": manifest.digest.hex()}
            for height, (manifest, _) in self.snapshots.items()
        ]

    def _snapshot(self, height: int, index: int | None = None) -> PeerReply:
        if height not in self.snapshots:
            return refused(404)
        manifest, chunks = self.snapshots[height]
        return ok(snapshot=json.loads(manifest.wire())) if index is None else PeerReply(200, chunks[index])

    def _body(self, called: Called) -> Any:
        return json.loads(called.request.body or b"{}")

    def _headers(self, locator: list[str], limit: int) -> PeerReply:
        heights = {block.header.hash.hex(): block.header.height for block in self.blocks}
        first = next((heights[name] for name in locator if name in heights), 0) + 1
        return headers_reply(self.blocks[first - 1 : first - 1 + limit], first, self.tip.height)

    def hello(self) -> Any:
        """Its hello at present."""
        now = milliseconds(self.transport.clock)
        return NodeKey(self.key.seed, self.names).hello(self.builder.params, self.tip, now)

    def got_at(self, path: str) -> list[Any]:
        """What it was sent at one path."""
        return [value for where, value in self.got if where == path]


def split_blocks(reply: bytes) -> list[bytes]:
    """The blocks in the reply of ``/p2p/blocks``, each one byte for byte as it was sent."""
    text, decoder = reply.decode(), json.JSONDecoder()
    at = text.index('"blocks":[') + len('"blocks":[')
    blocks: list[bytes] = []
    while text[at] != "]":
        _, end = decoder.raw_decode(text, at)
        blocks.append(text[at:end].encode())
        at = end + (text[end] == ",")
    return blocks
