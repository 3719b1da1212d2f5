"""Every example of docs/payments.md and docs/payment-proof.md, pasted into a terminal, and the numbers of the page."""

import re

import pytest

from svcd.commerce.payment import MAX_COUNTED, MAX_MISMATCHES
from svcd.commerce.payment_request import MAX_LABEL, MAX_URI, SINCE_HEIGHT_MARGIN
from tests.process_level.conftest import DEVNET, Nodes
from tests.process_level.pages import ROOT, Block, blocks_of, check_json, check_lines
from tests.process_level.terminal import Terminal
from tests.process_level.test_readme import prepared
from tests.process_level.test_webhooks_page import (
    GUIDE,
    PASTED,
    REFERENCE,
    WEBHOOKS,
    at,
    save_receiver,
    secrets_of_a_devnet,
)
from tests.programs import needs

PAGE = "docs/payments.md"
PROOF = "docs/payment-proof.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def in_forms(text: str) -> list[str]:
    """The lines of a text, with hashes and addresses replaced by their kinds, and numbers of five digits and more."""
    text = re.sub("svcd1q[02-9ac-hj-np-z]{38}", "address", re.sub("[0-9a-f]{64}", "hash", text))
    return re.sub("[0-9]{5,}", "number", text).strip().splitlines()


def check(shown: Block, printed: str) -> None:
    """Fail unless commands have printed what the page shows, of which `…` is more that came before."""
    if shown.language == "json":
        answer = printed.strip().splitlines()[-1]
        check_json(shown.text, answer)
        return
    check_lines(in_forms(shown.text), in_forms(printed))


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "base64", "cat", "curl", "cut", "date", "grep", "head", "sleep", "tail", "tr")
def test_the_pages_can_be_pasted_twice(nodes: Nodes) -> None:
    """Each time the commands of both pages print what the pages show, even after those of the other walkthroughs."""
    secrets_of_a_devnet(nodes.folder)
    node = nodes.start(*DEVNET, *WEBHOOKS, name="devnet")
    here = at(node, save_receiver(nodes.folder))
    pages = [*blocks_of(PAGE, *PASTED), *blocks_of(PROOF, *PASTED)]
    others = [block for page in ("README.md", GUIDE, REFERENCE) for block in blocks_of(page, "sh")]
    printed, pasted = "", 0
    with Terminal(prepared(node)) as terminal:
        for block in [*pages, *others, *pages]:
            text = here(block.text)
            if block.language == "sh":
                printed, status = terminal.paste(text)
                assert status == 0, printed
                pasted += 1
            else:
                check(Block(block.language, text), printed)
    assert pasted >= 24


@pytest.mark.parametrize(
    ("sentence", "number"),
    [
        (r"at most (\d+) characters; no control characters", MAX_LABEL),
        (r"counted up to (\d+)", MAX_COUNTED),
        (r"at most (\d+), those with the nearest amounts", MAX_MISMATCHES),
        (r"\| (\d+) blocks below the tip; store it", SINCE_HEIGHT_MARGIN),
        (r"It is (\d+) blocks below the tip", SINCE_HEIGHT_MARGIN),
    ],
)
def test_numbers_are_those_of_the_program(sentence: str, number: int) -> None:
    assert re.findall(sentence, TEXT.replace("\n", " ")) == [str(number)]


def test_the_page_for_wallets_has_the_limit_of_a_uri() -> None:
    page = (ROOT / "docs" / "wallets.md").read_text(encoding="utf-8")
    assert f"At most {MAX_URI} characters, all of them printable ASCII" in page
