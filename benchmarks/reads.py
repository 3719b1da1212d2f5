"""Answers per second of the routes that read, against a bare Klein route, by wrk with 16 connections."""

from pathlib import Path
from typing import Final

from attrs import frozen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.prepared_chain import Signer, build_blocks, create_chain, unowned_key
from benchmarks.processes import DATABASE, bare, node
from benchmarks.program import main
from benchmarks.wrk import hammer
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Transfer


@frozen
class Read:
    """One question: its paths, in turn, and what is wanted: a ratio, or for pages so many a second."""

    name: str
    paths: tuple[str, ...]
    goal: Goal


def _at_least(ratio: float) -> Goal:
    return Goal("ratio", ">=", ratio)


def _reads(accounts: int, paid: Transfer) -> list[Read]:
    addresses = [encode_address(unowned_key(number), DEVNET.address_prefix) for number in range(accounts)]
    shop = encode_address(paid.recipient, DEVNET.address_prefix)
    order = f"recipient={shop}&amountBaseUnits={paid.amount}"
    return [
        Read("/rpc/status", ("/rpc/status",), _at_least(2.2)),
        Read(
            f"/rpc/balance, {accounts:,} accounts",
            tuple([f"/rpc/balance/{text}" for text in addresses]),
            _at_least(1.6),
        ),
        Read("/rpc/block, an empty block", ("/rpc/block/1",), _at_least(1.5)),
        Read(
            "/rpc/commerce/payment, one order again and again",
            (f"/rpc/commerce/payment/{paid.reference}?{order}",),
            _at_least(1.3),
        ),
        Read("/rpc/transaction", (f"/rpc/transaction/{paid.txid.hex()}",), _at_least(1.3)),
        Read("the start page", ("/",), _PAGES),
        Read("a checkout", (f"/pay/?reference={paid.reference}&{order}",), _PAGES),
        Read("the page of a block", ("/block/1",), _PAGES),
    ]


_PAGES: Final = Goal("figure", ">=", 2_000)
_FULL: Final = (100_000, 7, 3)
_QUICK: Final = (1_000, 1, 1)


def measure(folder: Path, quick: bool) -> list[Row]:
    """Answers per second of the routes that read, against a bare Klein route, by wrk with 16 connections."""
    accounts, rounds_wanted, seconds = _QUICK if quick else _FULL
    buyer = Signer(0)
    paid = buyer.pays(unowned_key(0), amount=1_000_000, timestamp=DEVNET.genesis_time, reference="order-1")
    reads = _reads(accounts, paid)
    create_chain(folder / DATABASE, [buyer.key, *map(unowned_key, range(accounts))])
    build_blocks(folder / DATABASE, [(), (paid,), *[()] * 100])
    found = {read: Rounds() for read in reads}
    with node(folder) as served, bare(folder) as compared:
        for _ in range(rounds_wanted):
            for number, read in enumerate(reads):
                paths = folder / f"paths-{number}"
                paths.write_text("".join(f"{path}\n" for path in read.paths), "ascii")
                baseline = hammer(compared.url, seconds=seconds).answers_per_second
                report = hammer(served.url, seconds=seconds, script="calls.lua", arguments=(str(paths),))
                found[read].add(report.answers_per_second, baseline)
    return [
        rounds.row(read.name, unit="/s", baseline_is="/s, bare Klein route", goal=read.goal)
        for read, rounds in found.items()
    ]


if __name__ == "__main__":
    main(measure)
