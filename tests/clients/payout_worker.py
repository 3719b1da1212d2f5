"""A worker of a shop: pays the same payouts as the others, in an order of its own, until it is killed."""

import random
import sys

from svc_pay import DEVNET, Client, Key, Payouts, SqliteJournal, SvcPayError


def main(url: str, journal: str, seed: str, recipient: str, count: str, task: str) -> None:
    with Client(url) as node:
        payouts = Payouts(node, SqliteJournal(journal), Key(bytes.fromhex(seed)), DEVNET, confirmations=3)
        if task == "advance":
            print(len(payouts.advance()))
            return
        places = list(range(int(count)))
        random.shuffle(places)
        for place in places:
            print(f"pay {place}", flush=True)
            try:
                payouts.pay(f"payout-{place}", recipient=recipient, amount=10**8 + place, reference=f"payout-{place}")
            except SvcPayError as error:
                print(f"error: {error}", flush=True)
        print("end", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
