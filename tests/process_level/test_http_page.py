"""Every example of docs/http.md and of the routes in docs/peers.md, against a devnet, and the table of limits.

The routes for merchants have their sections in pages of their own.
"""

import json
import re
from collections.abc import Callable

import pytest

from svcd.config.schema import Limits
from svcd.p2p.routes import BODY_CAPS
from svcd.rpc.proof_routes import CHAIN_TOKENS, OTHER_TIP_TOKENS
from svcd.web.connections import DEFAULT_BODY_CAP
from svcd.web.rate_limits import LOOKUP_TOKENS
from svcd.web.routes import MAX_QUERY_FIELDS
from tests.process_level.pages import ROOT, agrees, blocks_in, blocks_of, check_head, check_json, run, section
from tests.process_level.running import RunningNode
from tests.process_level.test_devnet import Wallet
from tests.programs import needs

PAGE = "docs/http.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "curl", "sha256sum", "cut", "date", "grep", "head")
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
    # On a longer chain the answers have other numbers, but every command still works.
    for asked in examples[::2]:
        assert run(asked.text.replace("http://127.0.0.1:18645", node.url), folder)


@pytest.mark.socket
@pytest.mark.slow
@needs("bash", "curl", "cut", "grep")
def test_the_examples_of_routes_between_nodes_answer_as_shown(make_devnet: Callable[[], RunningNode]) -> None:
    node = make_devnet()
    asked, shown = blocks_in(section("docs/peers.md", "## Routes by example"), "sh", "jsonl")
    commands = asked.text.replace("http://127.0.0.1:18645", node.url)
    printed, again = (run(commands, node.data_dir.parent).splitlines() for _ in range(2))
    for line, got in zip(shown.text.splitlines(), printed, strict=True):
        assert agrees(json.loads(line), json.loads(got)), (line, got)
    assert [json.loads(line)["ok"] for line in again] == [json.loads(line)["ok"] for line in printed]


def routes(node: RunningNode) -> set[tuple[str, str]]:
    """The GET and POST routes in the node's OpenAPI document; HEAD and OPTIONS belong to every path."""
    paths = node.get("/rpc/openapi.json").json["paths"]
    methods = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    return {(method, path) for method, path in methods if method in ("GET", "POST")}


@pytest.mark.socket
@pytest.mark.slow
def test_every_route_of_a_node_has_a_place_and_an_example(devnet: RunningNode) -> None:
    """A section, a row of a table or an item of a list.

    Merchants have the commands of their pages, and routes between nodes an answer in the OpenAPI document.
    """
    pages = [f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")]
    commands = "".join(block.text for block in blocks_of(PAGE, "sh"))
    described = devnet.get("/rpc/openapi.json").json["paths"]
    text = "".join((ROOT / page).read_text(encoding="utf-8") for page in pages)
    assert len(routes(devnet)) >= 18
    for method, path in routes(devnet):
        route = re.escape(f"{method} {path}")
        assert re.search(rf"^###? {route}$|^[|-] `{route}` ", text, re.MULTILINE), path
        if path.startswith("/p2p/"):
            (content,) = described[path][method.lower()]["responses"]["200"]["content"].values()
            assert content["example"], path
        elif not path.startswith("/rpc/commerce/"):
            assert re.search(re.sub(r"\{\w+\}", r"[$\\w-]+", path) + r"\b", commands), path


def test_limits_are_those_of_the_node() -> None:
    limits = Limits()
    rows = dict(re.findall(r"^\| ([a-z -]+[a-z]) \| (.+) \|$", TEXT, re.MULTILINE))
    burst, lookup = limits.burst_seconds, 1 + LOOKUP_TOKENS
    shown = {
        "reading requests": (limits.requests_per_second, limits.requests_per_second * burst, CHAIN_TOKENS),
        "proofs of chain and accounts": (limits.proofs_per_second, limits.proofs_per_second * burst, OTHER_TIP_TOKENS),
        "broadcasts": (limits.broadcasts_per_second, limits.broadcasts_per_second * burst, lookup),
        "requests between nodes": (limits.peer_posts_per_second, limits.peer_posts_per_second * burst, lookup),
        "connections": (limits.connections_per_client, limits.connections),
        "time to send the headers": (limits.header_seconds,),
        "time to send the whole request": (limits.request_seconds,),
        "time to take the answer": (limits.answer_seconds,),
        "time between two requests on a connection": (limits.idle_seconds,),
        "body": (DEFAULT_BODY_CAP, *BODY_CAPS.values()),
        "names in a query": (MAX_QUERY_FIELDS,),
    }
    for name, numbers in shown.items():
        assert tuple(map(int, re.findall("[0-9]+", rows[name]))) == numbers, name


def test_every_sentence_of_the_pool_is_one_that_it_says() -> None:
    """The table of refusals, against the program's own text."""
    files = ("node/mempool.py", "chain/transaction.py", "chain/transition.py")
    source = "".join((ROOT / "svcd" / name).read_text() for name in files)
    # A literal may go on in the next line.
    said = re.sub(r"\{[^}]*\}", "N", re.sub(r'"\n +f?"', "", source))
    sentences = re.findall(r"^\| `([^`]+)` \| ", TEXT.split("## POST /rpc/broadcast")[1], re.MULTILINE)
    assert len(sentences) == 12
    for sentence in sentences:
        assert re.sub("[0-9]+|…", "N", sentence) in said, sentence
