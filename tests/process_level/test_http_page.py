"""Every example of docs/http.md, copied and pasted against a devnet, and its table of limits."""

import re
import shutil
from collections.abc import Callable

import pytest

from svcd.config.schema import Limits
from svcd.web.inputs import MAX_QUERY_FIELDS
from svcd.web.limits import DEFAULT_BODY_CAP
from tests.process_level.pages import ROOT, blocks_of, check_head, check_json, run
from tests.process_level.running import RunningNode
from tests.process_level.test_devnet import Wallet
from tests.rpc.test_openapi import ROUTES

PAGE = "docs/http.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.socket
@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(shutil.which, ("bash", "curl", "sha256sum", "cut", "date", "head"))),
    reason="curl or coreutils is not installed",
)
def test_the_examples_answer_as_shown(make_devnet: Callable[[], RunningNode]) -> None:
    node = make_devnet()
    folder = node.data_dir.parent
    Wallet(folder)
    examples = blocks_of(PAGE, "sh", "json", "http")
    assert len(examples) > 20
    assert all(
        block.language == ("json" if n % 2 else "sh") for n, block in enumerate(examples) if block.language != "http"
    )
    for asked, shown in zip(examples[::2], examples[1::2], strict=True):
        printed = run(asked.text.replace("http://127.0.0.1:18645", node.url), folder)
        (check_json if shown.language == "json" else check_head)(shown.text, printed)


def test_every_route_has_an_example() -> None:
    commands = "".join(block.text for block in blocks_of(PAGE, "sh"))
    for _, path in ROUTES:
        assert re.search(re.sub(r"\{\w+\}", r"[$\\w]+", path), commands), path


def test_every_route_has_a_section_that_the_table_links_to() -> None:
    for method, path in ROUTES:
        assert f"\n## {method} {path}\n" in TEXT
        anchor = re.sub(r"[^a-z -]", "", f"{method} {path}".lower()).replace(" ", "-")
        assert f"| [`{method} {path}`](#{anchor}) |" in TEXT


def test_limits_are_those_of_the_node() -> None:
    limits = Limits()
    rows = dict(re.findall(r"^\| ([a-z -]+[a-z]) \| (.+) \|$", TEXT, re.MULTILINE))
    burst = limits.burst_seconds
    shown = {
        "reading requests": (limits.requests_per_second, limits.requests_per_second * burst),
        "broadcasts": (limits.broadcasts_per_second, limits.broadcasts_per_second * burst),
        "connections": (limits.connections_per_client, limits.connections),
        "time to send the headers": (limits.header_seconds,),
        "time to send the whole request": (limits.request_seconds,),
        "time to take the answer": (limits.answer_seconds,),
        "time between two requests on a connection": (limits.idle_seconds,),
        "body": (DEFAULT_BODY_CAP,),
        "names in a query": (MAX_QUERY_FIELDS,),
    }
    for name, numbers in shown.items():
        assert tuple(map(int, re.findall("[0-9]+", rows[name]))) == numbers, name


def test_every_sentence_of_the_pool_is_one_that_it_says() -> None:
    """The table of refusals, against the program's own text."""
    source = "".join((ROOT / "svcd" / name).read_text() for name in ("node/mempool.py", "chain/transaction.py"))
    said = re.sub(r"\{[^}]*\}", "N", source)
    sentences = re.findall(r"^\| `([^`]+)` \| ", TEXT.split("## POST /rpc/broadcast")[1], re.MULTILINE)
    assert len(sentences) == 9
    for sentence in sentences:
        assert re.sub("[0-9]+|…", "N", sentence) in said, sentence
