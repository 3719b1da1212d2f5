"""Verifications a second of payments that nobody asked for before, on chains of 10^4 and 10^6, against a bare route."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final
from urllib.request import urlopen

from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.prepared_chain import build_blocks, create_chain, unowned_key
from benchmarks.processes import DATABASE, Served, bare, node
from benchmarks.program import main
from benchmarks.wrk import hammer
from svcd.chain.address import encode_address, key_hash
from svcd.chain.encoding import tagged_hash
from svcd.chain.params import DEVNET
from svcd.store.database import insert, open_writer
from svcd.store.packed_transfer import pack_transfer
from svcd.store.sorted_runs import SortedRuns, merge_some
from svcd.store.transfer_index import TRANSFERS, address_key, payment_key, place_of, reference_key, txid_key

PER_BLOCK: Final = 2_000
"""Payments in each block that :func:`lay_payments` makes."""
_MERCHANTS: Final = 500
"""They have as many orders each; the addresses of all fit into a node's memory, as those of a real node's shops do."""
_ASKED: Final = 30_000
"""Payments at most that are asked for in a round: more than a node answers in it, and far more than it caches."""
_FULL: Final = (10_000, 1_000_000, 7, 3)
_QUICK: Final = (2_000, 4_000, 1, 1)
"""Payments on the small chain and on the large one, rounds, seconds of each."""
_GAP: Final = 2 * DEVNET.slots_per_block


def lay_payments(path: Path, count: int, keys: Iterable[bytes] = (), *, merchants: int = _MERCHANTS) -> None:
    """Make a chain with ``count`` payments in the database at ``path``, 2,000 in each block; ``keys`` have accounts.

    The blocks are real ones without transfers, and the payments are laid beside them into the tables that are read
    later: signing and connecting a million transfers would take a quarter of an hour and lead to the same rows.
    """
    create_chain(path, keys)
    build_blocks(path, ([] for _ in range(0, count, PER_BLOCK)), gap=_GAP)
    connection = open_writer(path)
    connection.execute("PRAGMA synchronous = OFF")
    blocks = dict(connection.execute("SELECT height, block FROM canonical"))
    index = SortedRuns(connection, TRANSFERS)
    connection.execute("BEGIN")
    for start in range(0, count, PER_BLOCK):
        height, numbers = start // PER_BLOCK + 1, range(start, min(start + PER_BLOCK, count))
        txids, bodies = zip(*[body_of(number, merchants) for number in numbers], strict=True)
        rows = [((blocks[height] << 16) + at, pack_transfer(body)) for at, body in enumerate(bodies)]
        insert(connection, "block_transaction", rows)
        merge_some([index], index.add(_rows(numbers, txids, merchants), height))
    connection.execute("COMMIT")
    connection.close()


def end_merges(path: Path) -> None:
    """Let the index end the merges that full blocks have begun, as further blocks do that are not full."""
    with closing(open_writer(path)) as connection:
        index = SortedRuns(connection, TRANSFERS)
        while index.merges():
            merge_some([index], 0)


def _rows(numbers: Sequence[int], txids: Sequence[bytes], merchants: int) -> list[tuple[int, int]]:
    rows = set[tuple[int, int]]()
    for number, txid in zip(numbers, txids, strict=True):
        place, reference = place_of(number // PER_BLOCK + 1, number % PER_BLOCK), f"order-{number}"
        recipient = _recipient(number, merchants)
        keys = txid_key(txid), address_key(_sender(number)), address_key(recipient), reference_key(reference)
        rows.update([(key, place) for key in (*keys, payment_key(reference, recipient, 1_000_000 + number))])
    return sorted(rows)


def _recipient(number: int, merchants: int = _MERCHANTS) -> bytes:
    return unowned_key(number % merchants)


def _sender(number: int) -> bytes:
    return key_hash(number.to_bytes(32, "big"))


def body_of(number: int, merchants: int = _MERCHANTS) -> tuple[bytes, bytes]:
    """Id and canonical JSON of the transfer that pays the order of a number; nobody has signed it."""
    key = number.to_bytes(32, "big")
    sender = encode_address(_sender(number), DEVNET.address_prefix)
    recipient = encode_address(_recipient(number, merchants), DEVNET.address_prefix)
    before = (
        f'{{"fee":"{DEVNET.minimum_fee}","networkId":{DEVNET.network_id},"nonce":"0","payload":{{'
        f'"amount":"{1_000_000 + number}","paymentReference":"order-{number}","recipient":"{recipient}"}},'
        f'"senderAddress":"{sender}","senderPublicKey":"{key.hex()}"'
    )
    after = f',"timestamp":"{DEVNET.genesis_time}","type":1,"version":2}}'
    txid = tagged_hash("svc/tx/v2", DEVNET.genesis_hash + f"{before}{after}".encode())
    return txid, f'{before},"signature":"{"0" * 128}"{after}'.encode()


def paths(count: int, choice: Random | None = None) -> Iterator[str]:
    """Questions about different payments of a chain that has ``count``, in random order."""
    choice = choice or Random(3)
    for number in choice.sample(range(count), min(count, _ASKED)):
        recipient = encode_address(_recipient(number), DEVNET.address_prefix)
        yield (
            f"/rpc/commerce/payment/order-{number}?recipient={recipient}"
            f"&amountBaseUnits={1_000_000 + number}&confirmations=12"
        )


def check_found(url: str) -> None:
    """Raise RuntimeError unless the payment is on the chain; that none is found would be answered in less time."""
    with urlopen(url) as answer:  # noqa: S310 -- it is the URL of a process that we have started
        if not json.load(answer)["payment"]["canonical"]:
            raise RuntimeError(f"{url} does not find the payment")


@frozen
class Load:
    """What a server did under load."""

    answers_per_second: float
    microseconds: float
    """Processor time for each answer: while other programs want the processors, it says more than the other figure."""

    @classmethod
    def of(cls, served: Served, seconds: int, *paths: str) -> "Load":
        """Ask for the paths in a file, or, without one, for the root."""
        before = served.processor_seconds()
        script = "calls.lua" if paths else None
        answers = hammer(served.url, seconds=seconds, script=script, arguments=paths).answers_per_second
        return cls(answers, (served.processor_seconds() - before) / (answers * seconds) * 1e6)


def measure(folder: Path, quick: bool) -> list[Row]:
    """Verifications a second of payments that nobody asked for before, against a bare Klein route."""
    small, large, rounds_wanted, seconds = _QUICK if quick else _FULL
    for count in (small, large):
        (folder / str(count)).mkdir()
        lay_payments(folder / str(count) / DATABASE, count)
        end_merges(folder / str(count) / DATABASE)
    choice = Random(3)

    def asked(served: Served, count: int) -> tuple[Load, Load]:
        """What the node did, and what a bare route did that was asked the same."""
        # Others in each round: on the large chain, hardly one of them was ever asked for before.
        questions = list(paths(count, choice))
        file = folder / f"paths-{count}"
        file.write_text("".join(f"{path}\n" for path in questions), "ascii")
        check_found(f"{served.url}{questions[-1]}")
        return Load.of(served, seconds, str(file)), Load.of(compared, seconds, str(file))

    against_bare = {count: Rounds() for count in (small, large)}
    processor = {count: Rounds() for count in (small, large)}
    against_same = {count: Rounds() for count in (small, large)}
    processor_same = {count: Rounds() for count in (small, large)}
    against_small = Rounds()
    with node(folder / str(small)) as few, node(folder / str(large)) as many, bare(folder) as compared:
        for _ in range(rounds_wanted):
            baseline, found = Load.of(compared, seconds), {small: asked(few, small), large: asked(many, large)}
            for count, (load, same) in found.items():
                against_bare[count].add(load.answers_per_second, baseline.answers_per_second)
                processor[count].add(load.microseconds, baseline.microseconds)
                against_same[count].add(load.answers_per_second, same.answers_per_second)
                processor_same[count].add(load.microseconds, same.microseconds)
            against_small.add(found[large][0].answers_per_second, found[small][0].answers_per_second)
    rows = []
    for count, ratio in ((small, 1.0), (large, 0.8)):
        name = f"/rpc/commerce/payment, each order once, {count:,} payments"
        goal = Goal("ratio", ">=", ratio)
        rows.append(against_bare[count].row(name, unit="/s", baseline_is="/s, bare Klein route", goal=goal))
        reading = "bare Klein route that reads the same terms"
        rows.append(against_same[count].row(name, unit="/s", baseline_is=f"/s, {reading}"))
        name = f"{name}, processor time"
        rows.append(processor[count].row(name, unit="µs", baseline_is="µs, bare Klein route"))
        rows.append(processor_same[count].row(name, unit="µs", baseline_is=f"µs, {reading}"))
    name, goal = f"{large:,} payments against {small:,}", Goal("ratio", ">=", 0.8)
    return [*rows, against_small.row(name, unit="/s", baseline_is=f"/s, {small:,} payments", goal=goal)]


if __name__ == "__main__":
    main(measure)
