"""A devnet for people who look at pages: accounts, transfers signed beside the browser, the chain's word."""

import secrets
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

from attrs import frozen

from svcd.chain.address import encode_address, key_hash
from svcd.chain.params import DEVNET, FAUCET_SEED
from svcd.chain.signature import public_key_of
from svcd.chain.transaction import Draft, sign_transfer
from svcd.keyfile import Pbkdf2, render, seal
from tests.process_level.running import RunningNode, wait_until

PASSWORD = "correct horse"
FEE = 10_000
COIN = 10**8
SHOP = "svcd1qqr0t67zeqfa0ed44hudd8s2a88ysuh7y0c0qcc"
MAINNET_SHOP = "svc1qqr0t67zeqfa0ed44hudd8s2a88ysuh7ytvpxz4"


CHOOSE_PROOF = """(text) => {
  const chosen = document.getElementById("proof-file");
  const files = new DataTransfer();
  files.items.add(new File([text], "proof.json"));
  chosen.files = files.files;
  chosen.dispatchEvent(new Event("change"));
  return true;
}"""
"""Chooses a file with this text on the page of payment proofs, as the dialogue of the browser does."""


def fresh(what: str) -> str:
    """A reference that no other test uses."""
    return f"{what}-{secrets.token_hex(4)}"


@frozen
class Account:
    """A key that the tests know."""

    seed: bytes

    @classmethod
    def random(cls) -> "Account":
        """A key of its own."""
        return cls(secrets.token_bytes(32))

    @property
    def address(self) -> str:
        """Its address on devnet."""
        return encode_address(key_hash(public_key_of(self.seed)), DEVNET.address_prefix)

    def keyfile(self, folder: Path) -> Path:
        """A keyfile of it, under PASSWORD."""
        path = folder / f"{self.address}.json"
        kdf = Pbkdf2(iterations=1_000_000)
        path.write_bytes(render(seal(self.seed, PASSWORD, params=DEVNET, random=secrets.token_bytes, kdf=kdf)))
        return path


FAUCET = Account(FAUCET_SEED)


def payment_uri(reference: str, *, recipient: str = SHOP, amount: str | None = "2.5", rest: str = "") -> str:
    """A payment URI, with the amount in coins and more parameters behind it."""
    coins = "" if amount is None else f"amount={amount}&"
    return f"svc:{recipient}?{coins}ref={reference}{rest}"


def checkout_path(reference: str, *, recipient: str = SHOP, amount: str = "2.5", rest: str = "") -> str:
    """The checkout of an order that is settled after 2 confirmations."""
    return f"/pay/?reference={reference}&recipient={recipient}&amount={amount}&confirmations=2{rest}"


def wallet_path(uri: str) -> str:
    """Where a shop leads its buyer to."""
    return f"/wallet/?pay={quote(uri, safe='')}"


@frozen
class Chain:
    """What tests do to the chain of a node, and ask of it, without a browser."""

    node: RunningNode

    def fund(self, address: str, coins: str = "100") -> None:
        """Give coins, in a block of their own."""
        self.node.ok(self.node.operator("/operator/faucet", {"recipient": address, "amount": coins}))
        self.node.mine(1)

    def pay(self, sender: Account, recipient: str, units: int, reference: str | None = None, *, skip: int = 0) -> str:
        """Hand in a transfer that no browser made, and leave out ``skip`` nonces before its own; its txid."""
        nonce = int(self.node.account(sender.address)["pendingNonce"]) + skip
        now = int(time.time() * 1000)
        draft = Draft(recipient=recipient, amount=units, fee=FEE, nonce=nonce, timestamp=now, reference=reference)
        wire = sign_transfer(draft, seed=sender.seed, params=DEVNET).wire
        return str(self.node.ok(self.node.post("/rpc/broadcast", b'{"transaction":' + wire + b"}"))["txid"])

    def reorganise(self, depth: int, *, drop: bool = False) -> None:
        """Replace so many blocks by empty ones; their transfers return to the mempool, or are dropped."""
        self.node.ok(self.node.operator("/operator/reorganise", {"depth": depth, "dropTransactions": drop}))

    def waiting(self, sender: str) -> int:
        """How many transfers of `sender` wait in the mempool."""
        account = self.node.account(sender)
        return int(account["pendingNonce"]) - int(account["nonce"])

    def transfers(self, address: str) -> list[Any]:
        """What the chain has of an address, the newest first."""
        return list(self.node.ok(self.node.get(f"/rpc/address/{address}/transactions"))["transactions"])

    def paid(self, sender: str, reference: str) -> list[Any]:
        """The transfers of `sender` under a reference, once blocks hold all that waits."""
        while self.waiting(sender):
            self.node.mine(1)
        own = [each for each in self.transfers(sender) if each["senderAddress"] == sender]
        return [each for each in own if each["payload"].get("paymentReference") == reference]

    def wait_for(self, sender: str, *, waiting: int) -> None:
        """Wait until so many transfers of `sender` wait."""
        wait_until(lambda: self.waiting(sender) == waiting, f"{waiting} transfers that wait")
