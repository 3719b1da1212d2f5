"""Every example of docs/payments.md, copied and pasted against a devnet, and its numbers."""

import re

import pytest

from svcd.commerce.payment import MAX_COUNTED, MAX_MISMATCHES
from svcd.commerce.payment_request import MAX_LABEL, MAX_URI, SINCE_HEIGHT_MARGIN
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.pages import ROOT, blocks_in, blocks_of, check_json, run
from tests.process_level.running import free_port
from tests.process_level.test_devnet import Wallet
from tests.process_level.test_readme import follow, prepared
from tests.process_level.test_webhooks_page import WEBHOOKS, secrets_of_a_devnet
from tests.programs import needs

PAGE = "docs/payments.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")
WALKTHROUGH = blocks_in(TEXT.split("\n## Walkthrough\n")[1].split("\n## ")[0], "sh", "text")


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "curl", "sha256sum", "cut", "date")
def test_the_examples_answer_as_shown(nodes: Nodes) -> None:
    folder = nodes.folder
    secrets_of_a_devnet(folder)
    node = nodes.start(*DEVNET, *WEBHOOKS, name="devnet")
    Wallet(folder)
    examples = [block for block in blocks_of(PAGE, "sh", "text", "json") if block not in WALKTHROUGH]
    assert len(examples) >= 20
    assert [block.language for block in examples] == ["sh", "json"] * (len(examples) // 2)
    for asked, shown in zip(examples[::2], examples[1::2], strict=True):
        check_json(shown.text, run(asked.text.replace("http://127.0.0.1:18645", node.url), folder))


def told(text: str) -> list[str]:
    """The lines of a text, with addresses replaced by their kind."""
    return re.sub("svcd1q[02-9ac-hj-np-z]{38}", "address", text).strip().splitlines()


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "cut", "grep", "head")
def test_the_walkthrough(nodes: Nodes) -> None:
    secrets_of_a_devnet(nodes.folder)
    node, port = nodes.start(*DEVNET, *WEBHOOKS, name="devnet"), free_port()
    here = [("http://127.0.0.1:18645", node.url), ("127.0.0.1:8080", f"127.0.0.1:{port}")]

    def moved(text: str) -> str:
        for shown, real in here:
            text = text.replace(shown, real)
        return text

    def awaited(text: str) -> str:
        """The same, but each event comes before the next change of the chain: a late one would be superseded."""
        come = "until grep -q payment.{} devnet/events.txt; do sleep 0.1; done\n"
        text = text.replace("svc node reorganise", f"{come.format('confirmed')}svc node reorganise")
        return re.sub(
            "(svc node reorganise .*?)(svc node mine)", rf"\1{come.format('reorged')}\2", text, flags=re.DOTALL
        )

    assert [block.language for block in WALKTHROUGH] == ["sh", "text"] * (len(WALKTHROUGH) // 2)
    followed = follow([awaited(moved(block.text)) for block in WALKTHROUGH[::2]], prepared(node))
    for shown, (printed, status) in zip(WALKTHROUGH[1::2], followed, strict=True):
        assert (told(printed), status) == (told(moved(shown.text)), 0)


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        (r"at most (\d+) characters; no control characters", MAX_LABEL),
        (r"At most (\d+) characters, all of them printable", MAX_URI),
        (r"counted up to (\d+)", MAX_COUNTED),
        (r"at most (\d+), those with the nearest amounts", MAX_MISMATCHES),
        (r"\| (\d+) blocks below the tip; store it", SINCE_HEIGHT_MARGIN),
        (r"It is (\d+) blocks below the tip", SINCE_HEIGHT_MARGIN),
    ],
)
def test_numbers_are_those_of_the_program(sentence: str, number: int) -> None:
    assert re.findall(sentence, TEXT.replace("\n", " ")) == [str(number)]


def test_links_lead_to_sections() -> None:
    headings = re.findall(r"^##+ (.+)$", TEXT, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", TEXT)) <= anchors
