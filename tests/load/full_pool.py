"""How much memory a full mempool takes: `python -m tests.load.full_pool` prints how many transfers wait, and MiB."""

import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from svcd.chain.accounts import Account
from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, parse_transfer, sign_transfer
from svcd.config.loader import load
from svcd.node.mempool import MAX_PER_SENDER, Mempool
from tests.chains import address_of, key_of

NOW = DEVNET.slot_time(1)


def transfers() -> Iterator[bytes]:
    """Transfers as they arrive, the largest there are; nobody has signed them, which the mempool leaves to others."""
    draft = Draft(
        recipient=address_of("shop", DEVNET.address_prefix),
        amount=DEVNET.account_minimum,
        fee=DEVNET.minimum_fee,
        nonce=0,
        timestamp=NOW,
        reference="r" * 64,
    )
    fields = json.loads(sign_transfer(draft, seed=key_of("payer").seed, params=DEVNET).wire)
    for number in range(sys.maxsize):
        key = (number // MAX_PER_SENDER).to_bytes(32, "big")
        fields["senderPublicKey"] = key.hex()
        fields["senderAddress"] = encode_address(key_hash(key), DEVNET.address_prefix)
        fields["nonce"] = str(number % MAX_PER_SENDER)
        fields["fee"] = str(DEVNET.minimum_fee + number)
        yield json.dumps(fields).encode()


def resident_mib() -> float:
    """VmRSS of this process."""
    gc.collect()
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


def main() -> None:
    limits = load().mempool
    pool = Mempool(DEVNET, max_transactions=limits.max_transactions, max_bytes=limits.max_bytes)
    window = pool.window(1, NOW)
    before = resident_mib()
    for number, wire in zip(range(limits.max_transactions), transfers(), strict=False):
        transfer = parse_transfer(json.loads(wire), DEVNET)
        accounts = dict.fromkeys((transfer.sender, transfer.recipient), Account(10**15))
        pool.admit(transfer, accounts, window=window, sequence=number + 1)
    print(len(pool), round(resident_mib() - before))


if __name__ == "__main__":
    main()
