"""A devnet node in a process of its own, and who pays on it."""

import os
import secrets
import socket
import subprocess
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import httpx
from svc_pay import DEVNET, Client, Key

BIN = Path(os.environ.get("SVCD_BIN") or Path(__file__).parents[3] / ".venv" / "bin")
DEADLINE = 120.0
"""Seconds after which something will not come any more, on a machine that is busy, too."""
BUYER = Key(sha256(b"svc devnet faucet").digest())
"""Every devnet has this key, and it is public."""
ORGANIZER = Key(sha256(b"the organizer of plugins/pretix").digest())
CONFIRMATIONS = 3


def wait_until(condition: Callable[[], object], what: str, seconds: float = DEADLINE) -> None:
    """Ask again and again."""
    give_up_at = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up_at, f"{what}: not within {seconds} s"
        time.sleep(0.02)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Devnet:
    """`svc devnet`, which can be stopped and started again on the same chain."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = Client(self.url)
        self.process = None
        self.start()
        self.fund(ORGANIZER)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SVC_", "SVCD_"))}
        with (self.folder / "node.log").open("ab") as log:
            self.process = subprocess.Popen(
                [BIN / "svc", "devnet", self.folder / "devnet", "--port", str(self.port)],
                stdout=log, stderr=log, env={**environment, "no_proxy": "*"},
            )

        def answers() -> bool:
            assert self.process.poll() is None, (self.folder / "node.log").read_text()
            try:
                return httpx.get(f"{self.url}/rpc/status").status_code == 200
            except httpx.HTTPError:
                return False

        wait_until(answers, "an answer of the node")

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self.process.terminate()
        assert self.process.wait(DEADLINE) in (0, -15), (self.folder / "node.log").read_text()

    def secret(self, name: str) -> str:
        """`manage-token` or `signing-secret`."""
        return (self.folder / "devnet" / name).read_text().strip()

    def operate(self, what: str, **body: object) -> None:
        """Let the operator change the chain."""
        transport = httpx.HTTPTransport(uds=str(self.folder / "devnet" / "operator.sock"))
        with httpx.Client(transport=transport, base_url="http://localhost/operator", timeout=DEADLINE) as operator:
            answer = operator.post(f"/{what}", json=body).json()
        assert answer["ok"], answer

    def mine(self, blocks: int = CONFIRMATIONS) -> None:
        """Make blocks."""
        self.operate("mine", blocks=blocks)

    def reorganise(self, depth: int = CONFIRMATIONS) -> None:
        """Replace the newest blocks by others, without their transfers, which return to the mempool."""
        self.operate("reorganise", depth=depth)

    def fund(self, key: Key) -> None:
        """Give a key coins."""
        self.operate("faucet", recipient=key.address(DEVNET), amount="1000")
        self.mine(1)

    def pay(self, recipient: str, amount: int, reference: str, key: Key = BUYER) -> str:
        """Send coins; the id of the transfer."""
        transfer = self.client.sign(key, DEVNET, recipient=recipient, amount=amount, reference=reference)
        self.client.broadcast(transfer)
        return transfer.txid


def fresh_key() -> Key:
    """A key that nobody has."""
    return Key(secrets.token_bytes(32))
