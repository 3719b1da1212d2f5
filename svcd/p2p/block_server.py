"""Serving the chain to other nodes: headers by place and blocks by place or hash (docs/peers.md "Messages")."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from svcd.chain.params import NetworkParams
from svcd.chain.transition import ChainPoint
from svcd.node.ledger import Ledger
from svcd.p2p.fields import DECIMAL, FROM, HASH, LIMIT, OBJECTS, query_number
from svcd.store.chain_store import ChainReader, StoredBlock
from svcd.web.answers import Answer, Rendered
from svcd.web.routing import Field, Route, object_schema

MAX_REPLY_BYTES: Final = 3 * 1024 * 1024
"""Of an answer with headers or blocks, but for its first one."""
MAX_HEADERS: Final = 2_000
"""Headers in one answer."""
MAX_LOCATOR: Final = 128
"""Hashes in one locator."""
MAX_HASHES: Final = 512
"""Blocks that one question may name."""
BODY_CAPS: Final = {(b"POST", b"/p2p/blocks"): 40 * 1024}
"""Bytes that the body of a route may have that needs more than others."""
_HEX_HASH: Final = re.compile("[0-9a-f]{64}")


def _hashes(most: int, value: object) -> list[bytes]:
    found = value if type(value) is list and len(value) <= most else []
    hashes = [bytes.fromhex(text) for text in found if type(text) is str and _HEX_HASH.fullmatch(text)]
    if hashes and len(hashes) == len(found):
        return hashes
    raise ValueError(f"must be an array of 1 to {most} block hashes, each 64 lower-case hex characters")


def _hash_list(name: str, most: int, description: str) -> Field:
    schema = {"type": "array", "items": HASH, "minItems": 1, "maxItems": most}
    return Field(name, partial(_hashes, most), schema, description)


def _limit(value: object) -> int:
    if type(value) is int and 1 <= value <= MAX_HEADERS:
        return value
    raise ValueError(f"must be a whole number from 1 to {MAX_HEADERS}")


_HEADERS_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": MAX_HEADERS, "default": MAX_HEADERS}
_HOW_MANY: Final = "How many headers to return at most."
_HEADERS: Final = object_schema({"headers": OBJECTS, "from": DECIMAL, "height": DECIMAL})


class BlockServer:
    """Answers other nodes that ask for headers and blocks; every answer is read in a thread, from one commit."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @Route(
        "GET",
        "/p2p/headers",
        "Canonical headers in order of height, at most 3 MiB",
        bucket="p2p",
        cost=4,
        by_size=MAX_REPLY_BYTES,
        query_fields=(FROM, query_number("limit", 1, MAX_HEADERS, MAX_HEADERS, _HOW_MANY)),
        answers={200: _HEADERS},
    )
    async def headers(self, from_: int, limit: int) -> Answer:
        """Answer GET /p2p/headers."""
        return await self._ask(partial(_headers_answer, from_, limit))

    @Route(
        "POST",
        "/p2p/headers",
        "Canonical headers above the last common block, which a locator finds",
        bucket="p2p",
        cost=4,
        by_size=MAX_REPLY_BYTES,
        cancellable=True,
        body_fields=(
            _hash_list("locator", MAX_LOCATOR, "Hashes of blocks of the asking node, the newest first."),
            Field("limit", _limit, _HEADERS_LIMIT, _HOW_MANY, required=False, default=MAX_HEADERS),
        ),
        answers={200: _HEADERS},
    )
    async def headers_after(self, locator: list[bytes], limit: int) -> Answer:
        """Answer POST /p2p/headers."""

        def answer(tip: ChainPoint, params: NetworkParams, reader: ChainReader) -> bytes:
            return _headers_answer(reader.last_common(locator) + 1, limit, tip, params, reader)

        return await self._ask(answer)

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
        wanted = range(from_, min(from_ + limit, self._ledger.tip.height + 1))
        return await self._ask(partial(_blocks_answer, wanted))

    @Route(
        "POST",
        "/p2p/blocks",
        "Blocks by hash, canonical or not, in the order of the hashes, at most 3 MiB; unknown ones are left out",
        bucket="p2p",
        cost=4,
        by_size=MAX_REPLY_BYTES,
        cancellable=True,
        body_fields=(_hash_list("hashes", MAX_HASHES, "The blocks to return."),),
        answers={200: object_schema({"blocks": OBJECTS, "height": DECIMAL})},
    )
    async def blocks_by_hash(self, hashes: list[bytes]) -> Answer:
        """Answer POST /p2p/blocks."""
        return await self._ask(partial(_blocks_answer, hashes))

    async def _ask(self, question: Callable[[ChainPoint, NetworkParams, ChainReader], bytes]) -> Answer:
        ledger = self._ledger
        return Rendered(await ledger.long_reads.ask(partial(question, ledger.tip, ledger.params)))


def _headers_answer(first: int, limit: int, tip: ChainPoint, _params: NetworkParams, reader: ChainReader) -> bytes:
    headers = list(_bounded(reader.headers(first, limit=limit)))
    return _rendered("headers", headers, f'"from":"{first}","height":"{tip.height}"')


def _blocks_answer(
    wanted: Iterable[int] | Iterable[bytes], tip: ChainPoint, params: NetworkParams, reader: ChainReader
) -> bytes:
    return _rendered("blocks", list(_bounded(_wires(wanted, params, reader))), f'"height":"{tip.height}"')


def _rendered(name: str, items: Sequence[bytes], rest: str) -> bytes:
    return b"".join([b'{"ok":true,"%s":[' % name.encode(), b",".join(items), b"],", rest.encode(), b"}"])


def _bounded(items: Iterable[bytes]) -> Iterator[bytes]:
    """The first of ``items`` and those after it, as far as they are 3 MiB together."""
    size = 0
    for index, item in enumerate(items):
        size += len(item)
        if index and size > MAX_REPLY_BYTES:
            return
        yield item


def _wires(wanted: Iterable[int] | Iterable[bytes], params: NetworkParams, reader: ChainReader) -> Iterator[bytes]:
    """The canonical JSON of blocks by height or hash; those that are not stored are left out."""
    for name in wanted:
        stored = reader.canonical(name) if isinstance(name, int) else reader.stored(name)
        if stored is not None:
            yield _wire(stored, params, reader)


def _wire(stored: StoredBlock, params: NetworkParams, reader: ChainReader) -> bytes:
    return reader.block_header(stored, params).wire(b",".join(reader.bodies(stored)))
