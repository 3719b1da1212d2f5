"""An auditor who shares no code with svcd: he reads the database and reckons everything again from the stored blocks.

Written from docs/protocol.md alone, the plain way: after every block each root by its definition, over all accounts.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from struct import pack
from typing import Any

from svcd.store.database import DatabaseConnection, connect

NEVER = 2**64 - 1
"""The slot since which somebody holds the minimum who does not hold it."""
CHARSET = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"


class Discrepancy(Exception):
    """The books are wrong; the text says where."""


def agree(found: object, expected: object, what: str) -> None:
    if found != expected:
        raise Discrepancy(f"{what}: found {found!r}, expected {expected!r}")


def tagged(tag: str, data: bytes) -> bytes:
    return sha256(tag.encode() + b"\0" + data).digest()


def canonical(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def key_hash(public_key: str) -> bytes:
    return tagged("svc/address/v1", bytes.fromhex(public_key))[:20]


def address_key(address: str) -> bytes:
    """The 20 bytes in an address, without a look at the checksum."""
    symbols = [CHARSET.index(letter) for letter in address.rpartition("1")[2]][1:-6]
    return int("".join(f"{symbol:05b}" for symbol in symbols), 2).to_bytes(20, "big")


# The state


@dataclass
class Account:
    balance: int
    nonce: int = 0
    held: int = NEVER


@dataclass
class Books:
    """Everything after a block."""

    rules: dict[str, Any]
    accounts: dict[bytes, Account]
    issued: int
    height: int = 0
    slot: int = 0
    clock: int = 0
    work: int = 0
    tip: bytes = b""
    transactions: list[tuple[object, ...]] = field(default_factory=list)
    addresses: list[tuple[object, ...]] = field(default_factory=list)
    payments: list[tuple[object, ...]] = field(default_factory=list)
    leaves: list[bytes] = field(default_factory=list)
    """Of the history tree, packed: hash, work, slot and clock of every block so far."""
    undo: dict[bytes, dict[bytes, bytes]] = field(default_factory=dict)
    """For every block the accounts it touched as they were: whether there was one, balance, nonce, held since."""

    @property
    def rules_hash(self) -> bytes:
        return tagged("svc/rules/v1", canonical(self.rules))

    @property
    def genesis_hash(self) -> bytes:
        return tagged("svc/block-id/v4", tagged("svc/genesis/v1", self.rules_hash) + bytes(8))

    def state_root(self) -> bytes:
        leaves = {
            key: sha256(b"\0" + key + pack(">QQQ", account.balance, account.nonce, account.held)).digest()
            for key, account in self.accounts.items()
        }
        return subtree(leaves, 0)

    def consensus_root(self) -> bytes:
        numbers = pack(">QQQ", self.height, self.slot, self.clock)
        work = self.work.to_bytes(32, "big") + self.next_target().to_bytes(32, "big")
        issued = pack(">Q", self.issued)
        earlier = self.leaves[: self.height]
        history = tagged("svc/history-root/v1", history_node(earlier)) if earlier else bytes(32)
        return tagged("svc/consensus/v1", self.rules_hash + self.genesis_hash + numbers + work + issued + history)

    def add_leaf(self, work: int) -> None:
        """Enter the block at the tip into the history tree."""
        self.leaves.append(self.tip + work.to_bytes(32, "big") + pack(">QQ", self.slot, self.clock))

    def next_target(self) -> int:
        initial, most, least = (int(self.rules[name], 16) for name in ("initialTarget", "maxTarget", "minTarget"))
        if self.height == 0:
            return initial
        lag = self.clock - self.rules["slotsPerBlock"] * (self.height - 1)
        exponent = abs(lag) * 65536 // self.rules["halfLifeSlots"] * (1 if lag >= 0 else -1)
        if abs(exponent) >= 2**24:
            return most if exponent > 0 else least
        whole, part = exponent >> 16, exponent & 65535
        factor = 65536 + ((195766423245049 * part + 971821376 * part**2 + 5127 * part**3 + 2**47) >> 48)
        target = initial * factor
        target = target << (whole - 16) if whole >= 16 else target >> (16 - whole)
        return int(max(least, min(most, target)))


def subtree(leaves: dict[bytes, bytes], depth: int) -> bytes:
    if not leaves:
        return bytes(32)
    if len(leaves) == 1:
        return next(iter(leaves.values()))
    sides: tuple[dict[bytes, bytes], dict[bytes, bytes]] = {}, {}
    for key, leaf in leaves.items():
        sides[key[depth // 8] >> (7 - depth % 8) & 1][key] = leaf
    return sha256(b"\1" + subtree(sides[0], depth + 1) + subtree(sides[1], depth + 1)).digest()


def history_node(leaves: list[bytes]) -> bytes:
    """The packed root of a history tree, by its definition."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    left, right = history_node(leaves[:split]), history_node(leaves[split:])
    work = int.from_bytes(left[32:64], "big") + int.from_bytes(right[32:64], "big")
    return tagged("svc/history-node/v1", left + right) + work.to_bytes(32, "big") + right[64:]


def history_table(leaves: list[bytes]) -> list[tuple[object, ...]]:
    """Every perfect subtree of two leaves or more: the height of its last block, its level, the packed node."""
    rows: list[tuple[object, ...]] = []
    for level in range(1, len(leaves).bit_length()):
        size = 2**level
        rows += [(end - 1, level, history_node(leaves[end - size : end])) for end in range(size, len(leaves) + 1, size)]
    return rows


# One block


def turn_page(books: Books, header: dict[str, Any], transfers: list[dict[str, Any]]) -> None:
    """Enter one block."""
    height, slot = int(header["height"]), int(header["slot"])
    agree(height, books.height + 1, "height")
    agree(header["parentHash"], books.tip.hex(), f"parent of block {height}")
    target = books.next_target()
    agree(int(header["baseTarget"], 16), target, f"base target of block {height}")
    core = {name: value for name, value in header.items() if name not in ("workNonce", "signature")}
    books.clock += min(slot - books.slot, books.rules["gapCapSlots"]) if books.height else 0
    books.height, books.slot = height, slot
    books.work += 2**256 // target
    books.tip = tagged("svc/block-id/v4", tagged("svc/block/v4", canonical(core)) + bytes.fromhex(header["workNonce"]))
    books.add_leaf(2**256 // target)
    reward, halving = int(books.rules["initialReward"]), books.rules["halvingBlocks"]
    if halving:
        reward >>= (height - 1) // halving
    elif sum(int(units) for _, units in books.rules["allocations"]) + height * reward >= 2**53:
        reward = 0
    books.issued += reward
    agree(header["transactionCount"], len(transfers), f"transaction count of block {height}")
    _enter(books, key_hash(header["producerPublicKey"]), reward, transfers)
    agree(header["stateRoot"], books.state_root().hex(), f"state root of block {height}")
    agree(header["consensusRoot"], books.consensus_root().hex(), f"consensus root of block {height}")
    agree(sum(account.balance for account in books.accounts.values()), books.issued, f"sum after block {height}")


def _enter(books: Books, producer: bytes, reward: int, transfers: list[dict[str, Any]]) -> None:
    before: dict[bytes, bytes] = {}
    senders, fees = set(), 0

    def touch(key: bytes) -> Account:
        account = books.accounts.get(key)
        if key not in before:
            numbers = (account.balance, account.nonce, account.held) if account else (0, 0, 0)
            before[key] = pack(">?QQQ", account is not None, *numbers)
        return books.accounts.setdefault(key, Account(0))

    for position, transfer in enumerate(transfers):
        payload = transfer["payload"]
        amount, fee = int(payload["amount"]), int(transfer["fee"])
        sender, recipient = key_hash(transfer["senderPublicKey"]), address_key(payload["recipient"])
        account = touch(sender)
        agree(int(transfer["nonce"]), account.nonce, f"nonce of transfer {position} in block {books.height}")
        account.balance -= amount + fee
        account.nonce += 1
        if account.balance < 0:
            raise Discrepancy(f"transfer {position} in block {books.height} spends more than there is")
        touch(recipient).balance += amount
        for who in (sender, recipient):
            if books.accounts[who].balance < int(books.rules["accountMinimum"]):
                raise Discrepancy(f"transfer {position} in block {books.height} leaves less than the account minimum")
        senders.add(sender)
        fees += fee
        _index(books, position, transfer, (sender, recipient, amount))
    touch(producer).balance += reward + fees
    minimum = int(books.rules["holdingMinimum"])
    for key in before:
        account = books.accounts[key]
        if account.balance < minimum:
            account.held = NEVER
        elif key in senders or account.held == NEVER:
            account.held = books.slot
    books.undo[books.tip] = before


def _index(books: Books, position: int, transfer: dict[str, Any], who: tuple[bytes, bytes, int]) -> None:
    sender, recipient, amount = who
    signed = {name: value for name, value in transfer.items() if name != "signature"}
    txid = tagged("svc/tx/v2", books.genesis_hash + canonical(signed))
    books.transactions.append((txid, books.height, position))
    books.addresses += [(key, books.height, position) for key in sorted({sender, recipient})]
    reference = transfer["payload"].get("paymentReference")
    if reference is not None:
        books.payments.append((reference, recipient, amount, books.height, position))


# The whole database


def audit(path: Path, rules: dict[str, Any]) -> Books:
    """The books of the canonical chain in the database at ``path``; raises Discrepancy where the database differs."""
    with closing(connect(path)) as db:
        agree(db.execute("PRAGMA integrity_check").fetchall(), [("ok",)], "integrity of the file")
        allocated = {address_key(address): Account(int(units)) for address, units in rules["allocations"]}
        books = Books(rules, allocated, sum(account.balance for account in allocated.values()))
        books.tip = books.genesis_hash
        books.add_leaf(0)
        for number, (header, transfers, columns) in enumerate(_canonical(db)):
            if number:
                turn_page(books, header, transfers)
            found = (number, books.tip, books.slot, books.clock, books.work.to_bytes(32, "big"), books.issued)
            agree(columns, found, f"columns of block {number}")
        _compare_tables(db, books)
    return books


def _canonical(db: DatabaseConnection) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], tuple[object, ...]]]:
    query = (
        "SELECT b.id, b.header, c.height, b.hash, b.slot, b.clock, b.work, b.issued "
        "FROM canonical c JOIN block b ON b.id = c.block ORDER BY c.height"
    )
    for number, header, *columns in db.execute(query).fetchall():
        bodies = db.execute("SELECT body FROM block_transaction WHERE block = ? ORDER BY position", (number,))
        yield json.loads(header), [_transfer(body) for (body,) in bodies], tuple(columns)


def _transfer(packed: bytes) -> dict[str, Any]:
    """A transfer as svcd/store/packed_transfer.py says that it is stored."""
    fee, network_id, nonce, amount, reference, recipient, sender, timestamp = packed[:-96].decode().split('"')
    return {
        "fee": fee,
        "networkId": int(network_id),
        "nonce": nonce,
        "payload": {"amount": amount, "recipient": recipient, **({"paymentReference": reference} if reference else {})},
        "senderAddress": sender,
        "senderPublicKey": packed[-96:-64].hex(),
        "signature": packed[-64:].hex(),
        "timestamp": timestamp,
        "type": 1,
        "version": 2,
    }


_ACCOUNTS = """
    SELECT key, balance, nonce, held FROM (
        SELECT key, balance, nonce, held, max(first) FROM (
            SELECT r.first AS first, key, balance, nonce, held
            FROM account_run r JOIN account_entry e ON e.run = r.number
        ) GROUP BY key
    ) WHERE balance NOT NULL ORDER BY key"""
"""Of each key the row of the newest run."""


def _key(kind: int, *parts: bytes) -> int:
    """The kind in the upper two bits of a signed number, and 62 bits of the hash."""
    hashed = int.from_bytes(sha256(b"".join(parts)).digest()[:8], "big") // 4
    return (kind << 62) + hashed - (1 << 63)


def _index_of(books: Books) -> list[tuple[int, ...]]:
    """The rows that the index of transfers must have."""
    rows = [(_key(0, txid), *place) for txid, *place in books.transactions]
    rows += [(_key(1, key), *place) for key, *place in books.addresses]
    for reference, recipient, amount, *place in books.payments:
        rows.append((_key(2, reference.encode()), *place))
        rows.append((_key(3, recipient, amount.to_bytes(8, "big"), reference.encode()), *place))
    return sorted(rows)


def _compare_tables(db: DatabaseConnection, books: Books) -> None:
    accounts = [
        (key, account.balance, account.nonce, None if account.held == NEVER else account.held)
        for key, account in sorted(books.accounts.items())
    ]
    agree(db.execute(_ACCOUNTS).fetchall(), accounts, "accounts")
    agree(sorted(db.execute("SELECT * FROM history")), sorted(history_table(books.leaves)), "history")
    index = db.execute(
        "SELECT key, place >> 16, place & 65535 FROM transfer_run r JOIN transfer_entry e ON e.run = r.number "
        "WHERE place >> 16 BETWEEN r.first AND r.last"
    )
    agree(sorted(index), _index_of(books), "the index")
    undo = {}
    for block_hash, data in db.execute("SELECT b.hash, u.data FROM undo u JOIN block b ON b.id = u.block"):
        records = [data[start : start + 45] for start in range(0, len(data), 45)]
        undo[block_hash] = {record[:20]: record[20:] for record in records}
    agree(undo, books.undo | {books.genesis_hash: {}}, "undo records")
