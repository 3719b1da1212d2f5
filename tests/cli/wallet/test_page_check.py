"""`svc wallet page-check` against a node, and against nodes that serve something else."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.web.resource import Resource

from svcd.cli.wallet.page_check import without_data
from svcd.pages.layout import with_warning
from svcd.pages.link_policy import LinkPolicy
from svcd.pages.page_hashes import page_hashes
from svcd.pages.routes import SECURITY_HEADERS, WALLET_HEADERS
from svcd.pages.static_files import PAGE, static_files, wallet_html
from svcd.pages.texts import load
from tests.cli.terminal import OTHER, Terminal, site_of
from tests.pages.conftest import show
from tests.rpc.node import Node

HASHES = list(page_hashes())


@pytest.fixture
def listed(terminal: Terminal) -> Path:
    """The list of a release."""
    path = terminal.folder / "wallet-page.sha256"
    path.write_text("".join(f"{digest}  {name}\n" for digest, name in HASHES))
    return path


CHECK = ("wallet", "page-check", "http://127.0.0.1:8645", "--hashes", "wallet-page.sha256")


def test_a_node_serves_the_page_of_its_release(terminal: Terminal, node: Node, listed: Path) -> None:
    names = {name for _, name in HASHES}
    terminal.public.site = show(node).site
    told = json.loads(terminal.ok(*CHECK, "--json").out)
    assert (told["same"], set(told["checked"])) == (True, names)
    assert {"/wallet/ en", "/wallet/ de", "/wallet/ Content-Security-Policy"} < names
    scripts = {name.split("/")[-1].split(".")[0] for name in names if name.endswith(".mjs")}
    assert scripts == {
        "wallet",
        "light-worker",
        "own-network",
        "passwords",
        "qr",
        "qr-reader",
        "mnemonic",
        "wallet-devnet",
        "wallet-history",
        "wallet-scan",
        "wallet-transfer",
    }
    assert any("common-passwords" in name for name in names)
    assert "is that of the release" in terminal.ok(*CHECK).out


def test_links_of_an_operator_and_warnings_are_no_difference(terminal: Terminal, node: Node, listed: Path) -> None:
    policy = LinkPolicy(recipients=frozenset([OTHER]), return_hosts=frozenset(["shop.example"]), only=True)
    shown = show(node, links=lambda: policy)
    shown.around.here = evolve(shown.around.here, behind=True)
    page = shown.ask("/wallet/").body
    assert OTHER.encode() in page
    assert b"Do not rely on this node" in page
    terminal.public.site = shown.site
    assert "is that of the release" in terminal.ok(*CHECK).out


class Changing(Resource):
    """Passes on what a node answers, after a change of one path."""

    isLeaf = True  # noqa: N815

    def __init__(self, answers: dict[bytes, tuple[dict[str, str], bytes]]) -> None:
        super().__init__()
        self.answers = answers

    def render(self, request: Any) -> bytes:
        language = request.getHeader(b"accept-language") or b""
        headers, body = self.answers[request.path + b" " + language if request.path == b"/wallet/" else request.path]
        for name, value in headers.items():
            request.setHeader(name, value)
        return body


def answers_of(terminal: Terminal) -> dict[bytes, tuple[dict[str, str], bytes]]:
    """All that the page consists of, as the node behind the terminal serves it."""
    policy = {name.decode(): value.decode() for name, value in (*SECURITY_HEADERS, *WALLET_HEADERS)}
    template = static_files().html(PAGE)
    pages = {
        f"/wallet/ {catalogue.language}".encode(): (
            policy,
            with_warning(wallet_html(template, catalogue), None, catalogue),
        )
        for catalogue in load()
    }
    return pages | {path.encode(): (policy, data) for path, data in static_files().linked_from(template).items()}


def changed_in(answers: dict[bytes, tuple[dict[str, str], bytes]], path: bytes, old: bytes, new: bytes) -> None:
    headers, body = answers[path]
    assert old in body
    answers[path] = headers, body.replace(old, new, 1)


@pytest.mark.parametrize(
    ("path", "old", "new", "sentence"),
    [
        (b"/wallet/ en", b"<main", b"<main><script></script", "/wallet/ en differs"),
        (b"/wallet/ de", b"</body>", b"</body> ", "/wallet/ de differs"),
        (b"/wallet/ en", b'id="site-data">{}', b'id="site-data">{"other":1}', "/wallet/ en differs"),
        (b"wallet[.].*mjs", b"const", b"let", "mjs differs"),
        (b"light-worker", b"const", b"let", "mjs differs"),
        (b"bip39-english", b"zoo", b"zzz", "txt differs"),
    ],
)
def test_every_change_is_found(
    terminal: Terminal, listed: Path, path: bytes, old: bytes, new: bytes, sentence: str
) -> None:
    answers = answers_of(terminal)
    [found] = [each for each in answers if each == path or (not path.startswith(b"/") and re.search(path, each))]
    terminal.public.site = site_of(Changing(answers), terminal.clock)
    assert "is that of the release" in terminal.ok(*CHECK).out
    changed_in(answers, found, old, new)
    failure = terminal.failure(*CHECK)
    assert sentence in failure
    assert failure.endswith("Enter no password and no words there")


@pytest.mark.parametrize(
    ("header", "value", "sentence"),
    [
        ("Link", "</evil.css>; rel=stylesheet", "/wallet/ en has the header Link"),
        ("Refresh", "0; url=https://evil.example", "/wallet/ en has the header Refresh"),
        ("Content-Security-Policy", "default-src *", "/wallet/ Content-Security-Policy differs"),
    ],
)
def test_headers_are_compared(terminal: Terminal, listed: Path, header: str, value: str, sentence: str) -> None:
    answers = answers_of(terminal)
    headers, body = answers[b"/wallet/ en"]
    answers[b"/wallet/ en"] = {**headers, header: value}, body
    terminal.public.site = site_of(Changing(answers), terminal.clock)
    assert sentence in terminal.failure(*CHECK)


def test_the_unit_of_a_network_is_no_difference(terminal: Terminal, listed: Path) -> None:
    answers = answers_of(terminal)
    for catalogue in load(unit="Token"):
        page = with_warning(wallet_html(static_files().html(PAGE), catalogue), None, catalogue)
        assert b'data-unit="Token"' in page
        path = f"/wallet/ {catalogue.language}".encode()
        answers[path] = answers[path][0], page
    terminal.public.site = site_of(Changing(answers), terminal.clock)
    assert "is that of the release" in terminal.ok(*CHECK).out
    changed_in(answers, b"/wallet/ en", b'data-unit="Token"', b'data-unit="Token" onload="x"')
    assert "/wallet/ en differs" in terminal.failure(*CHECK)


def test_the_links_of_an_operator_are_no_difference() -> None:
    start, end = b'<script type="application/json" id="site-data">', b"</script>"
    shops = b'"recipients":["svc1q"],"returnHosts":[],"only":true,"shopNames":{"svc1q":"Tea"}'
    for data in (b"{%b,%b}" % (shops, b'"blockSeconds":300,"idleSeconds":null'), b"{}"):
        assert without_data(start + data + end) == start + b"{}" + end
    for data in (b"alert(1)", b'{"recipients": []}', b"[]"):
        assert without_data(start + data + end) == start + data + end


@pytest.mark.parametrize("content", ["", "no list\n", f"{'0' * 64}  /static/x.mjs\n"])
def test_another_file_is_no_list(terminal: Terminal, listed: Path, content: str) -> None:
    listed.write_text(content)
    assert "wallet-page.sha256" in terminal.failure(*CHECK)
