"""What one node asks another: each route as a method, every answer checked for its form (docs/http.md "Peers")."""

import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

from attrs import frozen

from svcd.chain.encoding import canonical, decimal_u53, hex_bytes, parse_json
from svcd.chain.errors import RuleViolation
from svcd.chain.params import NetworkParams
from svcd.net.calls import Lane
from svcd.node.threads import Worker
from svcd.p2p.caller import Caller, CallFailed, Request, Trouble
from svcd.p2p.fields import MAX_BLOCKS, MAX_PEERS, MAX_TRANSACTIONS
from svcd.p2p.hello import Hello, HelloRefused, parse_hello

T = TypeVar("T")
HELLO_BYTES: Final = 4_096
STATUS_BYTES: Final = 4_096
PEERS_BYTES: Final = 65_536
BLOCKS_BYTES: Final = 4 * 1024 * 1024
TRANSACTIONS_BYTES: Final = 256 * 1024
RECEIPT_BYTES: Final = 4_096
HELLO_SECONDS: Final = 5.0
STATUS_SECONDS: Final = 5.0
BATCH_SECONDS: Final = 30.0
POST_SECONDS: Final = 10.0
_ERROR_SHOWN: Final = 200


@frozen
class PeerStatus:
    """What a peer claims its chain to be."""

    height: int
    hash: bytes
    work: int


@frozen
class Receipt:
    """What a peer made of something that we sent."""

    accepted: bool
    state: str
    """As the peer says it, or its reason for refusing."""


@frozen
class PeerClient:
    """Calls the routes of other nodes; every method raises CallFailed."""

    params: NetworkParams
    caller: Caller
    parser: Worker
    """Where a reply that takes more than a few milliseconds is taken apart."""

    async def hello(self, endpoint: str, ours: Hello) -> Hello:
        """The peer's hello in return for ours."""
        body = canonical({"hello": ours.message()})
        answer = await self._ask(endpoint, "/p2p/hello", body=body, max_bytes=HELLO_BYTES, seconds=HELLO_SECONDS)
        try:
            return parse_hello(answer.get("hello"))
        except HelloRefused as refused:
            raise CallFailed(Trouble.MALFORMED, f"its hello is malformed: {refused.detail}") from refused

    async def status(self, endpoint: str) -> PeerStatus:
        """What the peer claims its chain to be."""
        answer = await self._ask(endpoint, "/p2p/status", max_bytes=STATUS_BYTES, seconds=STATUS_SECONDS)

        def read(status: dict[str, Any]) -> PeerStatus:
            work = status["cumulativeWork"]
            if type(work) is not str or not work.isascii() or not work.isdigit() or len(work) > 78:
                raise ValueError("cumulativeWork is not a number")
            return PeerStatus(decimal_u53(status["height"], "height"), hex_bytes(status["hash"], 32, "hash"), int(work))

        return _read(answer.get("status"), read)

    async def blocks(
        self, endpoint: str, first: int, limit: int = MAX_BLOCKS, *, seconds: float = BATCH_SECONDS
    ) -> list[bytes]:
        """The canonical JSON of the peer's blocks from height ``first`` on, at most ``limit``; fewer at its tip."""
        path = f"/p2p/blocks?from={first}&limit={limit}"
        request = Request(path=path, max_bytes=BLOCKS_BYTES, seconds=seconds, lane=Lane.FETCH)
        reply = await self._call(endpoint, request)
        return await self.parser.run(split_blocks, reply, limit)

    async def peers(self, endpoint: str) -> list[str]:
        """Endpoints that the peer says it has verified: hints."""
        path = f"/p2p/peers?limit={MAX_PEERS}"
        answer = await self._ask(endpoint, path, max_bytes=PEERS_BYTES, seconds=STATUS_SECONDS)
        return _read(answer, lambda found: [_text(peer["endpoint"]) for peer in _list(found["peers"])[:MAX_PEERS]])

    async def transactions(self, endpoint: str, after: int) -> tuple[list[object], int]:
        """Waiting transfers of the peer since its sequence number ``after``, and the number to ask from next."""
        path = f"/p2p/transactions?after={after}&limit={MAX_TRANSACTIONS}"
        request = Request(path=path, max_bytes=TRANSACTIONS_BYTES, seconds=STATUS_SECONDS)
        answer = await self.parser.run(_object, await self._call(endpoint, request))

        def read(found: dict[str, Any]) -> tuple[list[object], int]:
            return _list(found["transactions"])[:MAX_TRANSACTIONS], decimal_u53(found["next"], "next")

        return _read(answer, read)

    async def send_transaction(self, endpoint: str, wire: bytes) -> Receipt:
        """Offer a transfer."""
        return await self._offer(endpoint, "/p2p/transaction", b'{"transaction":' + wire + b"}", Lane.TELL)

    async def send_block(self, endpoint: str, wire: bytes) -> Receipt:
        """Offer a block."""
        return await self._offer(endpoint, "/p2p/block", b'{"block":' + wire + b"}", Lane.URGENT)

    async def _offer(self, endpoint: str, path: str, body: bytes, lane: Lane) -> Receipt:
        request = Request(path=path, body=body, max_bytes=RECEIPT_BYTES, seconds=POST_SECONDS, lane=lane)
        try:
            reply = await self._call(endpoint, request)
        except CallFailed as failed:
            if failed.trouble is Trouble.REFUSED and failed.status == 400:
                return Receipt(False, failed.detail)
            raise
        return Receipt(True, _read(_object(reply), lambda receipt: _text(receipt["state"])))

    async def _ask(
        self, endpoint: str, path: str, *, body: bytes | None = None, max_bytes: int, seconds: float
    ) -> dict[str, Any]:
        return _object(await self._call(endpoint, Request(path=path, body=body, max_bytes=max_bytes, seconds=seconds)))

    async def _call(self, endpoint: str, request: Request) -> bytes:
        reply = await self.caller.call(endpoint, request)
        if reply.status != 200:
            text = reply.body[:_ERROR_SHOWN].decode("utf-8", "replace")
            raise CallFailed(Trouble.REFUSED, f"it answered {reply.status}: {text}", reply.status, reply.retry_after)
        return reply.body


def split_blocks(reply: bytes, limit: int) -> list[bytes]:
    """The blocks in the reply of ``/p2p/blocks``, each one byte for byte as it was sent; raises CallFailed."""
    if _is_crowded(reply, limit):
        raise CallFailed(Trouble.MALFORMED, "its reply has more parts than blocks of its size can have")
    blocks: list[bytes] = []
    try:
        text = reply.decode("utf-8")
        at = text.index(_BLOCKS) + len(_BLOCKS)
        complete = text[at] == "]"
        while not complete:
            if len(blocks) == limit:
                raise CallFailed(Trouble.MALFORMED, "it sent more blocks than were asked for")
            block, end = _DECODER.raw_decode(text, at)
            if type(block) is not dict or text[end] not in ",]":
                raise ValueError("not a list of objects")
            blocks.append(text[at:end].encode())
            at, complete = end + 1, text[end] == "]"
    except (ValueError, IndexError, RecursionError) as error:
        raise CallFailed(Trouble.MALFORMED, "its reply is not the JSON of blocks") from error
    return blocks


def _is_crowded(reply: bytes, limit: int) -> bool:
    """Whether a reply has far more arrays, objects or members than ``limit`` blocks that are as long together.

    The decoder lets no other thread run before it has finished a block: half a second for 4 MiB of empty arrays.
    """
    size = len(reply)
    most = {b"[": 2 * limit, b"{": size // 200, b",": size // 24}
    return any(reply.count(mark) > _SPARE + count for mark, count in most.items())


_SPARE: Final = 64
_BLOCKS: Final = '"blocks":['
_DECODER: Final = json.JSONDecoder()


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = parse_json(body)
    except RuleViolation as violation:
        raise CallFailed(Trouble.MALFORMED, f"its reply is {violation.detail}") from violation
    if type(value) is not dict:
        raise CallFailed(Trouble.MALFORMED, "its reply is not a JSON object")
    return value


def _read(value: Any, read: Callable[[Any], T]) -> T:
    try:
        return read(value)
    except (KeyError, TypeError, ValueError, RuleViolation) as error:
        raise CallFailed(Trouble.MALFORMED, "its reply does not have the agreed form") from error


def _list(value: object) -> list[Any]:
    if type(value) is list:
        return value
    raise TypeError("not an array")


def _text(value: object) -> str:
    if type(value) is str:
        return value
    raise TypeError("not a string")
