"""kill -9 while wallets broadcast and blocks are made: no accepted transfer is lost, and no nonce is skipped."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from random import Random

import pytest
from attrs import define, field

from svcd.chain.params import DEVNET
from svcd.chain.transaction import Draft, sign_transfer
from tests.chains import address_of, key_of
from tests.process_level.conftest import Nodes
from tests.process_level.running import RunningNode, wait_until
from tests.torture.audit import audit

pytestmark = [pytest.mark.socket, pytest.mark.slow]

SENDERS = 4


@define
class Sender:
    """A wallet that signs one transfer after the other."""

    name: str
    accepted: list[str] = field(factory=list)
    """The txids of the transfers that the node has accepted, by nonce."""
    unanswered: str = ""
    """The txid of the transfer that was sent when the node was killed."""

    @property
    def address(self) -> str:
        return address_of(self.name, "svcd")

    def broadcast(self, node: RunningNode) -> None:
        """Broadcast transfers until the node does not answer any more."""
        with suppress(HTTPException, OSError):
            while True:
                draft = Draft(
                    recipient=address_of("shop", "svcd"),
                    amount=DEVNET.account_minimum,
                    fee=DEVNET.minimum_fee,
                    nonce=len(self.accepted),
                    timestamp=round(time.time() * 1000),
                )
                transfer = sign_transfer(draft, seed=key_of(self.name).seed, params=DEVNET)
                self.unanswered = transfer.txid.hex()
                answer = node.post("/rpc/broadcast", b'{"transaction":' + transfer.wire + b"}")
                if answer.status == 400 and "too far ahead" in answer.error:
                    # The sender's earlier transfers wait for a block.
                    time.sleep(0.01)
                    continue
                node.ok(answer)
                self.accepted.append(self.unanswered)
                self.unanswered = ""

    def check(self, node: RunningNode) -> None:
        """Fail unless the node has every accepted transfer; one that was not answered may be there or not."""
        nonce = int(node.account(self.address)["pendingNonce"])
        if nonce == len(self.accepted) + 1:
            self.accepted.append(self.unanswered)
        assert nonce == len(self.accepted), f"of {len(self.accepted)} accepted transfers {nonce} are there"
        self.unanswered = ""


def count_accepted(senders: list[Sender]) -> int:
    return sum(len(sender.accepted) for sender in senders)


def make_blocks(node: RunningNode) -> None:
    """Make blocks of the waiting transfers until the node does not answer any more."""
    with suppress(HTTPException, OSError):
        while True:
            node.mine(1)


def test_a_crash_loses_no_accepted_transfer(nodes: Nodes, torture: bool) -> None:
    senders, random = [Sender(f"sender {number}") for number in range(SENDERS)], Random(1)
    node = nodes.start()
    for sender in senders:
        node.ok(node.operator("/operator/faucet", {"recipient": sender.address, "amount": "1000"}))
    node.mine(1)
    for _ in range(50 if torture else 4):
        before = count_accepted(senders)
        with ThreadPoolExecutor() as threads:
            running = [threads.submit(sender.broadcast, node) for sender in senders]
            running.append(threads.submit(make_blocks, node))
            time.sleep(random.uniform(0.3, 1))
            try:
                # Until the next block, none is accepted of a sender with as many transfers as may wait.
                wait_until(lambda before=before: count_accepted(senders) > before, "an accepted transfer")
            finally:
                node.kill()
        for each in running:
            each.result()
        node = nodes.start()
        for sender in senders:
            sender.check(node)

    while any(
        account["nonce"] != account["pendingNonce"] for account in (node.account(each.address) for each in senders)
    ):
        node.mine(1)
    for sender in senders:
        for nonce, txid in enumerate(sender.accepted):
            mined = node.ok(node.get(f"/rpc/transaction/{txid}"))["transaction"]
            assert (mined["senderAddress"], mined["nonce"]) == (sender.address, str(nonce))
    tip = node.status()["hash"]
    node.stop()
    assert audit(node.data_dir / "chain.sqlite", DEVNET.rules).tip.hex() == tip
