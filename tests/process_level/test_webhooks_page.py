"""docs/webhooks.md and docs/webhook-reference.md, pasted into a terminal: a receiver takes the events of an order."""

import json
import re
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.pages import ROOT, Block, agrees, blocks_of, check_lines
from tests.process_level.running import RunningNode, free_port
from tests.process_level.terminal import Terminal
from tests.process_level.test_readme import prepared
from tests.programs import needs

GUIDE = "docs/webhooks.md"
REFERENCE = "docs/webhook-reference.md"
TEXT = (ROOT / REFERENCE).read_text(encoding="utf-8")
PASTED = ("sh", "text", "json")
WEBHOOKS = (
    "--set=commerce.webhooks.enabled=true",
    "--set=commerce.webhooks.manageTokenFile=manage-token",
    "--set=commerce.webhooks.signingSecretFile=signing-secret",
    "--set=commerce.webhooks.allowHttpCallbacks=true",
    "--set=commerce.webhooks.allowPrivateCallbacks=true",
)


def secrets_of_a_devnet(folder: Path) -> None:
    """The two secrets that `make devnet` makes, in `devnet/`."""
    data_dir = folder / "devnet"
    data_dir.mkdir(mode=0o700)
    for name in ("manage-token", "signing-secret"):
        (data_dir / name).write_text(secrets.token_urlsafe(32) + "\n")
        (data_dir / name).chmod(0o600)


def save_receiver(folder: Path) -> int:
    """Save the receiver of the guide as the guide says; a free port for it."""
    (program,) = blocks_of(GUIDE, "python")
    (folder / "receive.py").write_text(program.text, encoding="utf-8")
    return free_port()


def at(node: RunningNode, port: int) -> Callable[[str], str]:
    """Names the port of a node, and of the receiver, in commands, since those of the pages may be in use here."""

    def here(text: str) -> str:
        text = text.replace("http://127.0.0.1:18645", node.url)
        return text.replace("127.0.0.1:8090", f"127.0.0.1:{port}").replace(" 8090 ", f" {port} ")

    return here


def in_forms(text: str) -> list[str]:
    """The lines of a text, with numbers of five digits and more replaced."""
    return re.sub("[0-9]{5,}", "number", text).strip().splitlines()


def check(shown: Block, printed: str) -> None:
    """Fail unless commands have printed what the page shows, of which `…` is more that came before."""
    if shown.language == "json":
        expected = json.loads(shown.text)
        if "sequence" in expected:
            return  # the body of an event, which no command prints
        answer = json.loads(printed)
        if "test" in expected:
            expected["test"] |= {name: answer["test"][name] for name in ("id", "milliseconds")}
        assert agrees(expected, answer), printed
        return
    check_lines(in_forms(shown.text), in_forms(printed))


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "cat", "curl", "date", "grep", "head", "base64", "sleep", "tr")
def test_the_pages_can_be_pasted_twice(nodes: Nodes) -> None:
    """In one terminal the receiver of the guide takes what it shows, and the routes answer as the reference shows."""
    secrets_of_a_devnet(nodes.folder)
    node = nodes.start(*DEVNET, *WEBHOOKS, name="devnet")
    here = at(node, save_receiver(nodes.folder))
    answers: dict[str, list[dict[str, Any]]] = {}
    printed = ""
    with Terminal(prepared(node)) as terminal:
        for block in [*blocks_of(GUIDE, *PASTED), *blocks_of(REFERENCE, *PASTED)] * 2:
            text = here(block.text)
            if block.language != "sh":
                check(Block(block.language, text), printed)
                continue
            printed, status = terminal.paste(text)
            assert status == 0, printed
            if "curl" in text and "authorization" in text:
                answers.setdefault(text, []).append(json.loads(printed))

    listed, watch, again, ended = [
        [answer for text, answer_list in answers.items() if mark in text for answer in answer_list]
        for mark in ("limit=1", "$watches/$id\n", "/redeliver", "/cancel")
    ]
    members = {"id", "event", "createdAt", "attempts", "lastAttemptAt", "lastStatus", "deliveredAt", "nextAttemptAt"}
    members |= {"lastError", "epoch", "sequence", "content"}
    assert all(f"`{member}`" in TEXT for member in members)
    for turn in range(2):
        shown = watch[turn]["subscription"]
        assert [each["id"] for each in listed[turn]["subscriptions"]] == [shown["id"]]
        assert (shown["lastState"], shown["payment"]["state"]) == ("confirmed", "confirmed")
        events = shown["events"]
        assert all(event.keys() - {"superseded", "attemptsLeft"} == members for event in events)
        names = [event["event"] for event in events if "superseded" not in event]
        assert [name for name in names if "confirming" not in name and "pending" not in name] == [
            "payment.confirmed",
            "payment.reorged",
            "payment.confirmed",
        ]
        assert again[turn]["event"]["id"] == events[0]["id"]
        subscription = ended[turn]["subscription"]
        assert (subscription["id"], subscription["ending"]) == (shown["id"], "cancelled")
    assert watch[0]["subscription"]["id"] != watch[1]["subscription"]["id"]
