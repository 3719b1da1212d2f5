"""docs/webhooks.md, followed by the letter: a watch, a payment, and a chain that changes its mind."""

import json
import secrets
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.pages import ROOT, agrees, blocks_of, run
from tests.process_level.running import BIN, DEADLINE, ENVIRONMENT, RunningNode, free_port, wait_until
from tests.programs import needs

PAGE = "docs/webhooks.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
WEBHOOKS = (
    "--set=commerce.webhooks.enabled=true",
    "--set=commerce.webhooks.manageTokenFile=manage-token",
    "--set=commerce.webhooks.signingSecretFile=signing-secret",
    "--set=commerce.webhooks.allowHttpCallbacks=true",
    "--set=commerce.webhooks.allowPrivateCallbacks=true",
)


class Shop:
    """The receiver and the terminal of somebody who follows the page."""

    def __init__(self, node: RunningNode) -> None:
        self.folder = node.data_dir.parent
        self._url, self._port = node.url, free_port()
        self._out = self.folder / "received"
        words = ["webhook", "listen", "--secret-file", "devnet/signing-secret", "--listen", f"127.0.0.1:{self._port}"]
        with self._out.open("wb") as out:
            self.receiver = subprocess.Popen(
                [BIN / "svc", *words], cwd=self.folder, env=ENVIRONMENT, stdout=out, stderr=subprocess.PIPE, text=True
            )
        assert self.receiver.stderr is not None
        assert self.receiver.stderr.readline().startswith("listening on ")

    def run(self, *marks: str) -> str:
        """What the commands of the page print that have these in them, as one shell."""
        found = [block.text for block in blocks_of(PAGE, "sh") for mark in marks if mark in block.text]
        assert len(found) == len(marks)
        commands = "".join(found).replace("http://127.0.0.1:18645", self._url)
        commands = commands.replace("http://127.0.0.1:8080", self.callback)
        # A payment that is in a block before the watches were evaluated is never told as pending.
        told = f"until grep -q payment.pending {self._out}; do sleep 0.1; done"
        commands = commands.replace("for block in 1 2 3", f"{told}\nfor block in 1 2 3")
        # Set already by the first commands of the page, for it is one terminal there.
        return run(commands, self.folder, SVCD_URL=self._url, SVCD_DATA_DIR="devnet")

    @property
    def callback(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def received(self) -> list[list[str]]:
        """The lines of the receiver in words, without date, time and id."""
        return [line.split()[3:-1] for line in self._out.read_text().splitlines()]

    @property
    def last(self) -> str:
        """The last line of the receiver."""
        return self._out.read_text().splitlines()[-1]

    def stop(self) -> None:
        """End the receiver as the page says; it ends well."""
        self.receiver.send_signal(signal.SIGINT)
        _, said = self.receiver.communicate(timeout=DEADLINE)
        assert (self.receiver.returncode, said) == (0, "")


def secrets_of_a_devnet(folder: Path) -> None:
    """The two secrets that `make devnet` makes, in `devnet/`."""
    data_dir = folder / "devnet"
    data_dir.mkdir(mode=0o700)
    for name in ("manage-token", "signing-secret"):
        (data_dir / name).write_text(secrets.token_urlsafe(32) + "\n")
        (data_dir / name).chmod(0o600)


@pytest.fixture
def shop(nodes: Nodes) -> Iterator[Shop]:
    """A devnet as `make devnet` runs it, and the receiver of the page."""
    secrets_of_a_devnet(nodes.folder)
    shop = Shop(nodes.start(*DEVNET, *WEBHOOKS, name="devnet"))
    yield shop
    shop.receiver.kill()
    shop.receiver.communicate()


def lines_shown(mark: str) -> list[list[str]]:
    """What the page shows of the receiver's lines, as `Shop.received` has them."""
    (text,) = [block.text for block in blocks_of(PAGE, "text") if mark in block.text and "UTC" in block.text]
    return [line.split()[3:-1] for line in text.splitlines()]


def subscription(text: str) -> dict[str, Any]:
    answer = json.loads(text)
    assert answer["ok"] is True
    return dict(answer["subscription"])


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "curl", "cat", "grep", "base64")
def test_the_story_of_an_order(shop: Shop) -> None:
    registered = shop.run("devnet/authorization\ncurl")
    shown = next(block.text for block in blocks_of(PAGE, "json") if '"subscription"' in block.text)
    assert agrees(json.loads(shown.replace("http://127.0.0.1:8080", shop.callback)), json.loads(registered)), registered

    shop.run("for block in 1 2 3")
    paid = lines_shown("payment.confirmed")
    wait_until(lambda: shop.received[-1:] == paid[-1:], "payment.confirmed")
    # How many depths are told one by one depends on how fast they come.
    assert [words for words in shop.received if words[0] != "payment.confirming"] == [paid[0], paid[-1]]
    assert all(words in paid for words in shop.received)

    shop.run("svc node reorganise")
    wait_until(lambda: shop.received[-1:] == lines_shown("payment.reorged"), "payment.reorged")

    def delivered() -> bool:
        events = subscription(shop.run("id=$(", "webhooks/$id\n"))["events"]
        return all(event["deliveredAt"] for event in events if not event.get("superseded"))

    wait_until(delivered, "the word that all is delivered")
    watch = subscription(shop.run("id=$(", "webhooks/$id\n"))
    assert watch["id"] == subscription(registered)["id"]
    assert (watch["lastState"], watch["payment"]["state"]) == ("pending", "pending")
    events = watch["events"]
    assert [event["event"] for event in events][:2] == ["payment.reorged", "payment.confirmed"]
    members = {"id", "event", "createdAt", "attempts", "lastAttemptAt", "lastStatus", "deliveredAt", "nextAttemptAt"}
    members |= {"lastError", "epoch", "sequence", "content"}
    assert all(event.keys() - {"superseded", "attemptsLeft"} == members for event in events)
    assert all(f"`{member}`" in TEXT for member in members)

    listed = json.loads(shop.run("?state=pending"))
    assert ([each["id"] for each in listed["subscriptions"]], listed["next"]) == ([watch["id"]], None)
    again = json.loads(shop.run("id=$(", "/redeliver\n"))["event"]
    assert again["id"] == events[0]["id"]
    wait_until(lambda: shop.last.endswith(f"{again['id']}  again"), "the event again")
    (shown,) = [block.text for block in blocks_of(PAGE, "json") if '"test": {' in block.text]
    answer = json.loads(shop.run("webhooks/test -d"))
    test = answer["test"]
    expected = json.loads(shown)
    expected["test"] |= {name: test[name] for name in ("id", "milliseconds")}
    assert answer == expected
    assert shop.last.endswith(f"  webhook.test  {test['id']}")

    ended = subscription(shop.run("id=$(", "/cancel"))
    assert (ended["id"], ended["active"], ended["ending"]) == (watch["id"], False, "cancelled")
    shop.stop()
