"""The HTTP client for other nodes: each route as a method, every reply checked for its form (docs/peers.md)."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, Final, TypeVar

from attrs import evolve, frozen

from svcd.chain.accounts import Account
from svcd.chain.block import HEADER_ROOM, Block, Header, parse_header
from svcd.chain.encoding import (
    canonical,
    decimal_u53,
    hex_bytes,
    parse_json,
    parse_wire_object,
)
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.chain.snapshot import CHUNK_ACCOUNTS, MAX_CHUNKS, Manifest, check_chunk, check_manifest, parse_manifest
from svcd.chain.transaction import Known
from svcd.interfaces import Worker
from svcd.limits import ENDLESS_ANSWER, SIDE_BLOCKS, TOO_MANY_REQUESTS, limit
from svcd.net.calls import CallKind
from svcd.node.fee_rates import LARGEST_TRANSFER
from svcd.p2p.call_budget import CallReason
from svcd.p2p.handshake import Hello, HelloRefused, parse_hello
from svcd.p2p.transport import FailureKind, PeerCallFailed, PeerRequest, Transport

T = TypeVar("T")

MAX_REPLY_BYTES: Final = limit(3 * 1024 * 1024, "size of a reply that the node sends", "bytes", TOO_MANY_REQUESTS)
"""Size limit of a reply with headers or blocks; the first item may exceed it."""
MAX_HEADERS: Final = limit(2_000, "headers in a reply", "headers", TOO_MANY_REQUESTS)
"""Headers in one reply."""
MAX_LOCATOR: Final = limit(128, "hashes in a locator", "hashes", TOO_MANY_REQUESTS)
"""Hashes in one locator."""
MAX_HASHES: Final = limit(512, "blocks in one request", "blocks", TOO_MANY_REQUESTS)
"""Blocks that one request may name by hash."""
MAX_BLOCKS: Final = 16
"""Blocks in one reply to a request by height."""
MAX_BRANCH_HEADERS: Final = limit(100, "headers of a branch in one post", "headers", SIDE_BLOCKS)
"""Headers in one post of a branch."""
MAX_PEERS: Final = 100
MAX_TRANSACTIONS: Final = 256
ASKED: Final = "asked"
KNOWN: Final = "known"
WANTED: Final = "wanted"
"""Answers to an announced header: the receiver fetches the block, has it, or wants the sender to post it."""
MORE: Final = "more"
"""Answer to headers of a branch, beside WANTED: they do not show more work than the receiver's tip yet."""
HELLO_BYTES: Final = 4_096
STATUS_BYTES: Final = 4_096
PEERS_BYTES: Final = 65_536
BLOCKS_BYTES: Final = limit(4 * 1024 * 1024, "size of a reply with blocks", "bytes", ENDLESS_ANSWER)
ENVELOPE_BYTES: Final = limit(4_096, "bytes of a reply beside what was requested", "bytes", ENDLESS_ANSWER)
"""What a reply may have beside the blocks, or the accounts, that were requested."""
MANIFEST_BYTES: Final = limit(
    3 * 1024 * 1024, "size of a reply with the manifest of a snapshot", "bytes", ENDLESS_ANSWER
)
"""Enough for as many chunks as a snapshot may have, each with as many accounts as it may have."""
limit(MAX_CHUNKS, "chunks of a snapshot", "chunks", ENDLESS_ANSWER)
limit(CHUNK_ACCOUNTS, "accounts in a chunk of a snapshot", "accounts", ENDLESS_ANSWER)
MAX_SNAPSHOTS: Final = 2
"""Snapshots that a peer serves; further ones in its status are not read."""
TRANSACTIONS_BYTES: Final = 256 * 1024
RECEIPT_BYTES: Final = 4_096
HELLO_SECONDS: Final = 5.0
STATUS_SECONDS: Final = 5.0
STALL_SECONDS: Final = limit(10.0, "time without progress of a reply", "seconds", ENDLESS_ANSWER)
MIN_BYTES: Final = limit(16 * 1024, f"progress of a reply in {STALL_SECONDS:g} s", "bytes", ENDLESS_ANSWER)
"""Bytes that a call must move in STALL_SECONDS to count as making progress; it has no deadline of its own."""

_ERROR_SHOWN: Final = 400
"""Bytes; the longest refusal of a hello has two names of chains and two hashes."""


@frozen
class SnapshotClaim:
    """A snapshot that a peer claims to serve (docs/peers.md "Snapshots")."""

    height: int
    hash: bytes
    digest: bytes
    """See :attr:`svcd.chain.snapshot.Manifest.digest`."""


@frozen
class PeerStatus:
    """The chain that a peer claims to have."""

    height: int
    hash: bytes
    work: int
    prune_height: int = 0
    """The lowest height from which on it has blocks; 0 if it has all."""
    snapshots: tuple[SnapshotClaim, ...] = ()
    changes_hash: bytes = b""
    """The hash of the changes of producers that it has; b"" if it tells none, or the network has no list of them."""


@frozen
class HeadersReply:
    """Headers of a peer's canonical chain."""

    headers: list[Header]
    first: int
    """The height of the first of them; the block below it is the last that both have."""
    height: int
    """The height of the peer's tip, as it claims."""
    is_one_chain: bool = True
    """Whether each header is the child of the one before."""

    @property
    def is_last(self) -> bool:
        """Whether the reply ends with the tip of the peer."""
        return not self.headers or self.headers[-1].height >= self.height


@frozen
class BlocksReply:
    """Blocks of one reply."""

    blocks: list[Block]
    """Each with the header that was given for it, in the order of the headers."""
    size: int
    """Bytes of these blocks. Not of the reply, in which a peer may send anything besides."""


@frozen
class PeerClient:
    """Calls the routes of other nodes; every method raises PeerCallFailed."""

    params: NetworkParams
    caller: Transport
    parser: Worker
    """A thread for parsing larger replies."""
    known: Known | None = None
    """Finds the transfers of a block that need not be parsed."""

    async def hello(
        self,
        endpoint: str,
        ours: Hello,
        *,
        call_back: bool = False,
        reason: CallReason = CallReason.PEER,
        client: str = "",
    ) -> Hello:
        """The peer's hello in reply to ours; ``call_back`` asks the peer to call this node.

        ``client`` is the address from which the peer asked for this call; "" if it did not.
        """
        request = PeerRequest(
            path="/p2p/hello?callBack=true" if call_back else "/p2p/hello",
            body=canonical({"hello": ours.message()}),
            max_bytes=HELLO_BYTES,
            seconds=HELLO_SECONDS,
            reason=reason,
            client=client,
        )
        answer = _object(await self._call(endpoint, request))
        try:
            return parse_hello(answer.get("hello"))
        except HelloRefused as refused:
            raise PeerCallFailed(FailureKind.MALFORMED, f"its hello is malformed: {refused.detail}") from refused

    async def status(self, endpoint: str) -> PeerStatus:
        """The chain that the peer claims to have."""
        answer = await self._ask(endpoint, "/p2p/status", max_bytes=STATUS_BYTES, seconds=STATUS_SECONDS)

        def read(status: dict[str, Any]) -> PeerStatus:
            work = status["cumulativeWork"]
            if type(work) is not str or not work.isascii() or not work.isdigit() or len(work) > 78:
                raise ValueError("cumulativeWork is not a number")
            height, block_hash = decimal_u53(status["height"], "height"), hex_bytes(status["hash"], 32, "hash")
            snapshots = tuple([_snapshot_claim(claim) for claim in _list(status["snapshots"])[:MAX_SNAPSHOTS]])
            prune_height = decimal_u53(status["pruneHeight"], "pruneHeight")
            changes_hash = b""
            if self.params.producers and "changesHash" in status:
                changes_hash = hex_bytes(status["changesHash"], 32, "changesHash")
            return PeerStatus(height, block_hash, int(work), prune_height, snapshots, changes_hash)

        return _read(answer.get("status"), read)

    async def headers(
        self, endpoint: str, locator: Sequence[bytes], limit: int = MAX_HEADERS, *, within: float | None = None
    ) -> HeadersReply:
        """The peer's canonical headers above the first block of ``locator``, hashes, that is canonical there.

        The answer must make progress or, if ``within`` is given, arrive within that many seconds.
        """
        body = canonical({"limit": limit, "locator": [block_hash.hex() for block_hash in locator]})
        request = PeerRequest(
            path="/p2p/headers",
            body=body,
            max_bytes=BLOCKS_BYTES,
            seconds=within or STALL_SECONDS,
            min_bytes=0 if within else MIN_BYTES,
            kind=CallKind.HEADERS,
        )
        reply = await self._call(endpoint, request)
        return await self.parser.run(_read_headers, reply, limit, self.params)

    async def blocks_by_hash(
        self, endpoint: str, headers: Sequence[Header], on_bytes: Callable[[int], None] | None = None
    ) -> BlocksReply:
        """The blocks of ``headers`` that the peer has and that fit into its reply.

        Fails with FailureKind.INVALID where a block does not have the transactions that its header commits to, and with
        FailureKind.MALFORMED where the answer is not whole, or a block in it is another one or not canonical JSON.
        """
        body = canonical({"hashes": [header.hash.hex() for header in headers]})
        request = PeerRequest(
            path="/p2p/blocks",
            body=body,
            max_bytes=self._max_bytes(headers),
            seconds=STALL_SECONDS,
            min_bytes=MIN_BYTES,
            on_bytes=on_bytes,
            kind=CallKind.FETCH,
        )
        reply = await self._call(endpoint, request)
        return await self.parser.run(_read_bodies, reply, headers, self.params, self.known)

    async def manifest(self, endpoint: str, claim: SnapshotClaim, state_root: bytes) -> Manifest:
        """The manifest of a snapshot that the peer claims to serve, of a block with the ``state_root``.

        Fails with FailureKind.INVALID where it is the claimed one, and not that of the block.
        """
        path = f"/p2p/snapshot/{claim.height}"
        request = PeerRequest(
            path=path, max_bytes=MANIFEST_BYTES, seconds=STALL_SECONDS, min_bytes=MIN_BYTES, kind=CallKind.FETCH
        )
        reply = await self._call(endpoint, request)
        return await self.parser.run(_read_manifest, reply, claim, state_root)

    async def chunk(
        self, endpoint: str, manifest: Manifest, index: int, on_bytes: Callable[[int], None] | None = None
    ) -> list[tuple[bytes, Account]]:
        """The accounts in a chunk of a snapshot, ascending by key hash.

        Fails with FailureKind.INVALID where they do not give the chunk's root in the state tree.
        """
        request = PeerRequest(
            path=f"/p2p/snapshot/{manifest.height}/{index}",
            # An error has a text, however few accounts there are.
            max_bytes=ENVELOPE_BYTES + manifest.chunks[index].size,
            seconds=STALL_SECONDS,
            min_bytes=MIN_BYTES,
            on_bytes=on_bytes,
            kind=CallKind.FETCH,
        )
        reply = await self._call(endpoint, request)
        return await self.parser.run(_read_chunk, reply, manifest, index)

    def _max_bytes(self, headers: Sequence[Header]) -> int:
        """The most bytes of a reply with the blocks of ``headers``: padding must not take memory and time."""
        sizes = [HEADER_ROOM + header.transaction_count * (LARGEST_TRANSFER + 1) for header in headers]
        return min(BLOCKS_BYTES, ENVELOPE_BYTES + sum(sizes))

    async def announce(self, endpoint: str, header: bytes, ours: str) -> str:
        """Announce a new block by its header in canonical JSON; the peer's state of the block, such as WANTED.

        ``ours`` is the endpoint at which this node serves the block; "" for none.
        """
        body = b'{"endpoint":' + canonical(ours) + b',"header":' + header + b"}"
        return await self._offer(endpoint, "/p2p/header", body, CallKind.URGENT)

    async def peers(self, endpoint: str) -> list[str]:
        """Endpoints that the peer claims to have verified."""
        path = f"/p2p/peers?limit={MAX_PEERS}"
        answer = await self._ask(endpoint, path, max_bytes=PEERS_BYTES, seconds=STATUS_SECONDS)
        return _read(answer, lambda found: [_text(peer["endpoint"]) for peer in _list(found["peers"])[:MAX_PEERS]])

    async def transactions(self, endpoint: str, after: int) -> tuple[list[object], int]:
        """Transfers in the peer's mempool after a sequence number, and the number to continue from."""
        path = f"/p2p/transactions?after={after}&limit={MAX_TRANSACTIONS}"
        request = PeerRequest(path=path, max_bytes=TRANSACTIONS_BYTES, seconds=STATUS_SECONDS)
        answer = await self.parser.run(_object, await self._call(endpoint, request))

        def read(found: dict[str, Any]) -> tuple[list[object], int]:
            return _list(found["transactions"])[:MAX_TRANSACTIONS], decimal_u53(found["next"], "next")

        return _read(answer, read)

    async def send_transaction(self, endpoint: str, wire: bytes) -> str:
        """Offer a transfer; its state at the peer, or why the peer refuses it."""
        return await self._offer(endpoint, "/p2p/transaction", b'{"transaction":' + wire + b"}", CallKind.TELL)

    async def send_block(self, endpoint: str, wire: bytes) -> str:
        """Offer a block; its state at the peer, or why the peer refuses it."""
        return await self._offer(endpoint, "/p2p/block", b'{"block":' + wire + b"}", CallKind.URGENT)

    async def send_branch(self, endpoint: str, headers: Sequence[bytes]) -> str:
        """Show the headers of a branch, canonical JSON; whether the peer wants its blocks now, or more headers."""
        body = b'{"headers":[' + b",".join(headers) + b"]}"
        return await self._offer(endpoint, "/p2p/branch", body, CallKind.TELL)

    async def _offer(self, endpoint: str, path: str, body: bytes, kind: CallKind) -> str:
        request = PeerRequest(
            path=path, body=body, max_bytes=RECEIPT_BYTES, seconds=STALL_SECONDS, min_bytes=MIN_BYTES, kind=kind
        )
        try:
            reply = await self._call(endpoint, request)
        except PeerCallFailed as failed:
            if failed.kind is FailureKind.REFUSED and failed.status == 400:
                return failed.detail
            raise
        return _read(_object(reply), lambda receipt: _text(receipt["state"]))

    async def _ask(self, endpoint: str, path: str, *, max_bytes: int, seconds: float) -> dict[str, Any]:
        return _object(await self._call(endpoint, PeerRequest(path=path, max_bytes=max_bytes, seconds=seconds)))

    async def _call(self, endpoint: str, request: PeerRequest) -> bytes:
        reply = await self.caller.call(endpoint, request)
        if reply.status != 200:
            text = reply.body[:_ERROR_SHOWN].decode("utf-8", "replace")
            raise PeerCallFailed(
                FailureKind.REFUSED, f"it answered {reply.status}: {text}", reply.status, reply.retry_after
            )
        return reply.body


def _read_headers(reply: bytes, limit: int, params: NetworkParams) -> HeadersReply:
    """The headers in the reply of ``/p2p/headers``; raises PeerCallFailed."""
    try:
        found = parse_wire_object(reply)
        headers = [parse_header(value, params) for value in _list(found["headers"])]
        first, height = decimal_u53(found["from"], "from"), decimal_u53(found["height"], "height")
    except (KeyError, TypeError, ValueError, RuleViolation) as error:
        raise PeerCallFailed(FailureKind.MALFORMED, f"its headers do not have the agreed form: {error}") from error
    if len(headers) > limit:
        raise PeerCallFailed(FailureKind.MALFORMED, "it sent more headers than were asked for")
    # In the parser's thread, where the hash of each header is computed.
    is_one_chain = all(header.parent_hash == before.hash for before, header in pairwise(headers))
    return HeadersReply(headers, first, height, is_one_chain)


def _read_bodies(reply: bytes, headers: Sequence[Header], params: NetworkParams, known: Known | None) -> BlocksReply:
    """The blocks in a reply, in canonical JSON and in the order of their headers; raises PeerCallFailed.

    Each is found by the text of its header, and so never parsed as another block than the one that was requested.
    """
    begin = reply.find(_BLOCKS)
    if begin < 0:
        raise PeerCallFailed(FailureKind.MALFORMED, "its reply has no list of blocks in canonical JSON")
    at = begin + len(_BLOCKS)
    blocks: list[Block] = []
    ends = reply[at : at + 1] == b"]"
    for header in () if ends else headers:
        found = _with_its_signature(header, reply, at).read_transfers(reply, at, params, known)
        if found is None:
            # The peer may have left the block out; otherwise the end is not reached.
            continue
        transfers, end = found
        block = Block(header, transfers)
        try:
            block.check_body()
        except RuleViolation as violation:
            raise PeerCallFailed(
                FailureKind.INVALID, f"a block that it sent does not match its header: {violation.detail}"
            ) from violation
        blocks.append(block)
        at, after = end + 1, reply[end : end + 1]
        ends = after == b"]"
        if ends:
            break
        if after != b",":
            raise PeerCallFailed(FailureKind.MALFORMED, f"its reply has no comma after block {header.height}")
    if not ends:
        sentence = "its reply has a block that was not asked for, is out of order, or is not in canonical JSON"
        raise PeerCallFailed(FailureKind.MALFORMED, sentence)
    return BlocksReply(blocks, sum([block.size for block in blocks]))


def _snapshot_claim(value: dict[str, Any]) -> SnapshotClaim:
    height, block_hash = decimal_u53(value["height"], "height"), hex_bytes(value["hash"], 32, "hash")
    return SnapshotClaim(height, block_hash, hex_bytes(value["digest"], 32, "digest"))


def _read_manifest(reply: bytes, claim: SnapshotClaim, state_root: bytes) -> Manifest:
    """The manifest in the reply of ``/p2p/snapshot/{height}``; raises PeerCallFailed."""
    manifest = _read(_object(reply), lambda found: parse_manifest(found["snapshot"]))
    if manifest.digest != claim.digest:
        # Its block may have been undone since its status came.
        raise PeerCallFailed(FailureKind.MALFORMED, "its manifest is not the one that its status named")
    if (manifest.height, manifest.hash) != (claim.height, claim.hash):
        raise PeerCallFailed(FailureKind.INVALID, "the manifest that its status named is that of another block")
    try:
        check_manifest(manifest, state_root)
    except RuleViolation as violation:
        raise PeerCallFailed(FailureKind.INVALID, f"it sent a false manifest: {violation.detail}") from violation
    return manifest


def _read_chunk(reply: bytes, manifest: Manifest, index: int) -> list[tuple[bytes, Account]]:
    """The accounts in the reply of ``/p2p/snapshot/{height}/{index}``; raises PeerCallFailed."""
    try:
        return check_chunk(manifest, index, reply)
    except RuleViolation as violation:
        raise PeerCallFailed(FailureKind.INVALID, f"it sent a false chunk: {violation.detail}") from violation


def _with_its_signature(header: Header, reply: bytes, at: int) -> Header:
    """The header with the signature that it has in a reply: the hash leaves it out, so honest peers may differ."""
    found = reply.find(_SIGNATURE, at, at + HEADER_ROOM)
    if found < 0:
        return header
    begin = found + len(_SIGNATURE)
    try:
        signature = bytes.fromhex(reply[begin : begin + 128].decode("ascii"))
    except ValueError:
        return header
    return header if signature == header.signature else evolve(header, signature=signature)


_BLOCKS: Final = b'"blocks":['
_SIGNATURE: Final = b'"signature":"'


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = parse_json(body)
    except RuleViolation as violation:
        raise PeerCallFailed(FailureKind.MALFORMED, f"its reply is {violation.detail}") from violation
    if type(value) is not dict:
        raise PeerCallFailed(FailureKind.MALFORMED, "its reply is not a JSON object")
    return value


def _read(value: Any, read: Callable[[Any], T]) -> T:
    try:
        return read(value)
    except (KeyError, TypeError, ValueError, RuleViolation) as error:
        raise PeerCallFailed(FailureKind.MALFORMED, "its reply does not have the agreed form") from error


def _list(value: object) -> list[Any]:
    if type(value) is list:
        return value
    raise TypeError("not an array")


def _text(value: object) -> str:
    if type(value) is str:
        return value
    raise TypeError("not a string")
