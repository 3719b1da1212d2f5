"""Seconds and bytes of `svc verify --trustless` on a devnet of 20,000 blocks, against Argon2 and all headers."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from time import perf_counter
from typing import Final
from urllib.request import urlopen

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.prepared_chain import Signer, build_blocks
from benchmarks.processes import DATABASE, node
from benchmarks.program import main
from svcd.chain.address import encode_address
from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.transaction import Draft, sign_transfer
from svcd.chain.work import work_value
from svcd.store.chain_store import ChainReader
from svcd.store.database import open_reader

_SVC: Final = str(Path(sys.executable).parent / "svc")
_AMOUNT: Final = 250_000_000
_PAID_AT: Final = 100
"""The height of the block with the payment: deep, so that the samples do not show it by chance."""


def measure(folder: Path, quick: bool) -> list[Row]:
    """Seconds and bytes of `svc verify --trustless` on a devnet of 20,000 blocks, against Argon2 and all headers."""
    count, rounds_wanted = (400, 1) if quick else (20_000, 9)
    recipient = encode_address(Signer(0).key, DEVNET.address_prefix)
    draft = Draft(
        recipient=recipient,
        amount=_AMOUNT,
        fee=DEVNET.minimum_fee,
        nonce=0,
        timestamp=DEVNET.genesis_time,
        reference="order-1",
    )
    payment = sign_transfer(draft, seed=FAUCET_SEED, params=DEVNET)
    build_blocks(folder / DATABASE, ([payment] if height == _PAID_AT else [] for height in range(1, count + 1)))
    with closing(open_reader(folder / DATABASE)) as connection:
        of_headers = sum(map(len, ChainReader(connection).headers(1, limit=count)))
    seconds, bytes_read = Rounds(), Rounds()
    with node(folder) as served:
        command = (_SVC, "verify", "order-1", recipient, "2.5", "--trustless", "--json", "--url", served.url)
        shown = _headers_shown(served.url, recipient)
        for _ in range(rounds_wanted):
            began = perf_counter()
            told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            taken = perf_counter() - began
            seconds.add(taken, _argon2_seconds(shown))
            bytes_read.add(told["fetchedBytes"] / 1e6, of_headers / 1e6)
    return [
        seconds.row(
            f"svc verify --trustless, {count:,} blocks", unit="s", baseline_is=f"s, Argon2 of the {shown} headers shown"
        ),
        bytes_read.row(
            f"svc verify --trustless, {count:,} blocks, fetched",
            unit="MB",
            baseline_is="MB, every header",
            goal=Goal("figure", "<=", 0.6),
        ),
    ]


def _headers_shown(url: str, recipient: str) -> int:
    """How many headers a proof of the payment shows, each of which costs one evaluation of Argon2id."""
    path = f"/rpc/commerce/payment/order-1/proof?recipient={recipient}&amountBaseUnits={_AMOUNT}&chain=1"
    with urlopen(url + path) as answer:  # noqa: S310 -- it is the URL of a process that we have started
        return len(json.load(answer)["proof"]["chain"]["headers"])


def _argon2_seconds(count: int) -> float:
    """How long so many work values of devnet's memory cost take on every core."""

    def compute(number: int) -> None:
        work_value(bytes(32), number.to_bytes(8, "big"), DEVNET.memory_kib)

    began = perf_counter()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(compute, range(count)):
            pass
    return perf_counter() - began


if __name__ == "__main__":
    main(measure)
