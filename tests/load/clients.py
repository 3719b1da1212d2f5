"""Hostile clients in a process of their own: `python -m tests.load.clients KIND PORT NICENESS`, until it is ended.

Each kind comes from its own part of 127/8, each client of it from an address of its own. They can be run at nice 19,
so that on a small machine the node and whoever measures it do not wait for them. A line a second says what came back.
"""

import asyncio
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from random import Random
from typing import Any

from attrs import evolve

from svcd.chain.address import encode_address
from svcd.chain.block import Block, Header, block_id, parse_header, transactions_root
from svcd.chain.difficulty import next_target
from svcd.chain.params import DEVNET
from svcd.chain.signature import sign
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.chain.transition import consensus_root, genesis_head, head_after
from svcd.node.work_search import WorkSearch
from tests.chains import key_of

CONNECTIONS = 1_000
CLIENTS = 64
SENDERS = 256
FLOODERS = 16
AHEAD = 16
AT_ONCE = 300
"""Requests that hurry in one piece."""
RANDOM = Random(20261120)
SEEN: Counter[str] = Counter()


def addresses(part: int) -> Iterator[str]:
    """Ever new addresses in 127.<part>/16."""
    for number in count():
        yield f"127.{part}.{number // 250 % 250}.{number % 250 + 1}"


class Client:
    """A connection from one address, opened anew whenever it is closed."""

    def __init__(self, port: int, address: str) -> None:
        self.port = port
        self.address = address
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.address, 0))
        reader, writer = self._streams
        try:
            head = f"{method} {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            status = int((await reader.readline()).split()[1])
            length = 0
            while (line := await reader.readline()) not in (b"\r\n", b""):
                name, _, value = line.partition(b":")
                length = int(value) if name.lower() == b"content-length" else length
            return status, await reader.readexactly(length)
        except (OSError, IndexError, asyncio.IncompleteReadError):
            self.close()
            raise ConnectionError from None

    async def read(self, target: str) -> Any:
        """The answer to GET, which must come."""
        while True:
            try:
                status, body = await self.ask("GET", target)
            except OSError:
                status = 0
            if status == 200:
                return json.loads(body)
            await asyncio.sleep(0.2)

    def close(self) -> None:
        """Hang up."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def drip(port: int) -> None:
    """A thousand clients who send a byte of a request now and then, and come again when they are cut off."""

    async def one(address: str) -> None:
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
                SEEN["connected"] += 1
                for byte in b"GET /rpc/status HTTP/1.1\r\nX-Slow: " + bytes(1000):
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(1)
            except OSError:
                # By the node's patience or for somebody else: that the node knows.
                SEEN["cut off"] += 1
                await asyncio.sleep(0.5)

    source = addresses(1)
    await asyncio.gather(*(one(next(source)) for _ in range(CONNECTIONS)))


async def hurry(port: int) -> None:
    """64 clients who ask for many things in one piece, and again as soon as they have all answers."""
    targets = ("/rpc/status", "/rpc/block/1", "/rpc/consensus")
    asked = b"".join(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % target.encode() for target in targets) * (AT_ONCE // 3)

    async def one(address: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        while True:
            writer.write(asked)
            received = b""
            statuses: list[bytes] = []
            while len(statuses) < AT_ONCE:
                piece = await reader.read(65536)
                if not piece:
                    raise ConnectionResetError
                received += piece
                statuses = re.findall(rb"HTTP/1\.1 (\d{3}) ", received)
            SEEN.update(status.decode() for status in statuses)

    async def again(address: str) -> None:
        while True:
            try:
                await one(address)
            except OSError:
                SEEN["cut off"] += 1
                await asyncio.sleep(0.05)

    source = addresses(2)
    await asyncio.gather(*(again(next(source)) for _ in range(CLIENTS)))


async def lie(port: int) -> None:
    """Blocks with a good signature: every other one without work, the others with work and a wrong state root."""
    reader, source, key, head = Client(port, "127.3.250.1"), addresses(3), key_of("liar"), genesis_head(DEVNET)
    for number in count():
        # Honest blocks come slowly, so there are never more of them than one answer holds.
        for value in (await reader.read(f"/p2p/headers?from={head.point.height + 1}"))["headers"]:
            parent = parse_header(value, DEVNET)
            head = head_after(DEVNET, head, parent)
        header = evolve(
            parent,
            height=parent.height + 1,
            slot=parent.slot + 1,
            parent_hash=parent.hash,
            producer_key=key.public,
            multiplier=10_000,
            base_target=next_target(DEVNET, height=parent.height + 1, clock=head.point.difficulty_clock),
            transactions_root=transactions_root(()),
            transaction_count=0,
            state_root=RANDOM.randbytes(32),
        )
        # What depends on headers alone is right, so that the node computes the work, and then the state.
        root = consensus_root(DEVNET, head_after(DEVNET, head, header).point, head.history.root)
        header = evolve(header, consensus_root=root)
        client = Client(port, next(source))
        await _note(client, "/p2p/block", b'{"block":' + _seal(header, key.seed, with_work=bool(number % 2)) + b"}")
        client.close()


def _seal(header: Header, seed: bytes, *, with_work: bool) -> bytes:
    nonce: bytes | None = RANDOM.randbytes(8)
    if with_work:
        nonce = WorkSearch(header, DEVNET.memory_kib, RANDOM.getrandbits(63)).run(0, 1)
    signature = sign(seed, block_id(header.core_hash, nonce or bytes(8)))
    return Block(header.sealed(work_nonce=nonce or bytes(8), signature=signature), ()).wire()


async def flood(port: int) -> None:
    """Valid transfers of all who were given coins, 16 of each, with ever higher fees, so that more come than fit."""

    async def one(address: str, first: int) -> None:
        client = Client(port, address)
        for bid in count():
            for number in range(first, SENDERS, FLOODERS):
                key = key_of(f"sender-{number}")
                mine = encode_address(key.hash, DEVNET.address_prefix)
                nonce = int((await client.read(f"/rpc/balance/{mine}"))["account"]["nonce"])
                for ahead in range(AHEAD):
                    transfer = _transfer(key.seed, nonce + ahead, fee=DEVNET.minimum_fee * 2 ** (bid % 20))
                    await _note(client, "/rpc/broadcast", b'{"transaction":' + transfer.wire + b"}")

    source = addresses(4)
    await asyncio.gather(*(one(next(source), number) for number in range(FLOODERS)))


async def _note(client: Client, target: str, body: bytes) -> None:
    """Post something and count what comes back, by status and the first words of the sentence."""
    try:
        status, answer = await client.ask("POST", target, body)
        why = " ".join(json.loads(answer).get("error", "").split()[:2])
        SEEN[f"{status} {why}".strip()] += 1
        if status == 429:
            await asyncio.sleep(0.05)
    except OSError:
        SEEN["cut off"] += 1
        await asyncio.sleep(0.05)


def _transfer(seed: bytes, nonce: int, *, fee: int) -> Transfer:
    recipient = encode_address(RANDOM.randbytes(20), DEVNET.address_prefix)
    now = int(time.time() * 1000)
    draft = Draft(recipient=recipient, amount=DEVNET.account_minimum, fee=fee, nonce=nonce, timestamp=now)
    return sign_transfer(draft, seed=seed, params=DEVNET)


KINDS: dict[str, Callable[[int], Awaitable[None]]] = {"drip": drip, "hurry": hurry, "lie": lie, "flood": flood}


async def main(kind: str, port: int) -> None:
    working = asyncio.ensure_future(KINDS[kind](port))
    while not working.done():
        await asyncio.wait([working], timeout=1)
        sys.stdout.write(json.dumps(SEEN) + "\n")
        sys.stdout.flush()
    await working


if __name__ == "__main__":
    os.nice(int(sys.argv[3]))
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
