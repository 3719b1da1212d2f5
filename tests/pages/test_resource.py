"""Headers, hosts, methods, limits, errors and files of all pages (docs/pages.md)."""

import gzip
from collections import Counter
from collections.abc import Callable
from hashlib import sha256

import pytest
from attrs import evolve
from mnemonic import Mnemonic
from twisted.web.template import Tag

from svcd.pages import layout
from svcd.pages.layout import flattened
from svcd.pages.resource import PageHosts
from svcd.pages.static_files import static_files
from svcd.pages.texts import Catalogue
from svcd.web.rate_limits import Rate
from tests.pages.conftest import Shown, show
from tests.rpc.node import FAUCET, Node
from tests.web.wire import Wire

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "manifest-src 'self'; worker-src 'none'; base-uri 'none'; form-action {form}; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
POLICY_WITH_WORKER = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; "
    "manifest-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types svc-worker"
)
PAY = f"/pay/?reference=order-1&recipient={FAUCET}&amount=1"
SEARCHABLE = ["/", "/block/0", f"/address/{FAUCET}", "/mempool", "/peers", "/search", "/reference/order-1"]
WITH_WORKER = ["/wallet/", "/proof/"]
WITHOUT_FORM = [
    PAY,
    *WITH_WORKER,
    "/till/",
    "/pay",
    f"/qr.svg?data={FAUCET}",
    "/static/style.css",
    "/static/checkout.mjs",
]
REFUSED = ["/nothing", "/block/x", "/block/9", "/tx/00", "/pay/", "/static/nothing.css", "/qr.svg?data=hello"]


@pytest.mark.parametrize("target", SEARCHABLE + WITHOUT_FORM + REFUSED)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
def test_every_answer_has_the_security_headers(still: Shown, target: str, method: str) -> None:
    headers = still.ask(target, method).headers
    without_form = target.startswith("/pay") or (method != "POST" and target in WITHOUT_FORM)
    form = "'none'" if without_form else "'self'"
    worker = method != "POST" and target in WITH_WORKER
    assert headers["content-security-policy"] == (POLICY_WITH_WORKER if worker else POLICY.format(form=form))
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["cross-origin-embedder-policy"] == "require-corp"
    wallet = method != "POST" and target == "/wallet/"
    assert "geolocation=()" in headers["permissions-policy"]
    assert ("camera=(self)" if wallet else "camera=()") in headers["permissions-policy"]
    assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize("name", ["light-worker.mjs", "proof-worker.mjs"])
def test_a_worker_loads_nothing(still: Shown, name: str) -> None:
    headers = still.ask(f"/static/{name}").headers
    policy = "default-src 'none'; script-src 'wasm-unsafe-eval'; frame-ancestors 'none'"
    assert headers["content-security-policy"] == policy
    assert headers["cross-origin-embedder-policy"] == "require-corp"


@pytest.mark.parametrize(
    "target", ["/static/light-worker.mjs", "/static/proof-worker.mjs", "/static/wallet.mjs", "/wallet/"]
)
def test_no_file_is_a_service_worker(still: Shown, target: str) -> None:
    assert still.ask(target, **{"Service-Worker": "script"}).status == 403
    assert still.ask(target).status == 200


@pytest.mark.parametrize("target", [*SEARCHABLE, PAY, "/wallet/", "/till/"])
def test_pages_are_html_and_not_cached(still: Shown, target: str) -> None:
    response = still.ask(target)
    assert (response.status, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["vary"].split(", ")[0] == "Accept-Language"
    head = still.ask(target, "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(response.body))


@pytest.mark.parametrize("target", ["/", "/reference/", "/static/style.css", "/nothing"])
def test_other_methods_are_405(still: Shown, target: str) -> None:
    response = still.ask(target, "POST")
    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD")


def test_json_routes_are_unaffected(still: Shown) -> None:
    response = still.ask("/rpc/status")
    assert response.json["ok"] is True
    assert "content-security-policy" not in response.headers
    assert still.ask("/rpc/nothing").json["ok"] is False


# Where they are


@pytest.mark.parametrize(
    ("target", "location"),
    [
        ("/pay?amount=1&label=a%20b", "/pay/?amount=1&label=a%20b"),
        ("/wallet?pay=svc%3Ax", "/wallet/?pay=svc%3Ax"),
        ("/wallet", "/wallet/"),
        ("/till", "/till/"),
        ("/reference", "/reference/"),
        ("/wallet?a=\"<'>", "/wallet/?a=%22%3C'%3E"),
    ],
)
def test_missing_slash_redirects(still: Shown, target: str, location: str) -> None:
    response = still.ask(target)
    assert (response.status, response.headers["location"]) == (301, location)


@pytest.mark.parametrize(
    "target", ["//example.org", "/block/", "/block/0/", "/static/", "/static/../x", "/%ff", "/Pay/"]
)
def test_unknown_path_is_404(still: Shown, target: str) -> None:
    assert "no page at this address" in still.see(target, 404).visible


def test_errors_are_json_unless_html_is_accepted(still: Shown) -> None:
    assert "no such path" in still.ask("/nothing", Accept="*/*").error
    assert "height" in still.ask("/block/x", Accept="application/json").error


def test_an_error_names_the_expected_value(still: Shown) -> None:
    page = still.see("/block/x", 400)
    assert "A block has a number" in page.visible
    assert "Block: must be a height from 0 to" in page.text
    assert ".." not in page.text


# Who asks, and how often


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8645", "[::1]:1", "203.0.113.5", "[2001:db8::1]:8645"])
def test_allowed_hosts_and_addresses_are_served(open_node: Callable[..., Node], host: str) -> None:
    site = show(open_node(), hosts=PageHosts(frozenset({"localhost", "[::1]"}), addresses=True))
    assert site.ask("/", host=host).status == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "1.2.3.4.evil.example", "a b"])
@pytest.mark.parametrize("target", ["/", "/wallet/", "/static/style.css", "/nothing"])
def test_other_hosts_are_421(open_node: Callable[..., Node], host: str, target: str) -> None:
    site = show(open_node(), hosts=PageHosts(frozenset({"localhost"}), addresses=True))
    response = site.ask(target, host=host)
    assert response.status == 421
    assert "content-security-policy" in response.headers
    assert site.ask("/rpc/status", host=host or "x").status == 200


def test_addresses_are_421_if_hosts_are_configured(open_node: Callable[..., Node]) -> None:
    site = show(open_node(), hosts=PageHosts(frozenset({"node.example"}), addresses=False))
    assert [site.ask("/", host=host).status for host in ("node.example", "192.0.2.1")] == [200, 421]


def test_pages_and_files_use_the_read_bucket(open_node: Callable[..., Node]) -> None:
    rates = {"read": Rate(0.01, 5), "broadcast": Rate(0, 1), "p2p": Rate(0, 1)}
    shown = show(open_node(), rates=rates)
    assert [shown.ask("/static/style.css").status for _ in range(6)] == [200] * 5 + [429]
    refused = shown.ask("/")
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) > 0
    assert b"Too many requests" in refused.body
    assert shown.ask("/wallet/").status == 429


@pytest.mark.parametrize(
    ("method", "path", "host", "status"),
    [
        ("GET", "/nowhere", "node.example", 404),
        ("GET", "/%ff", "node.example", 404),
        ("POST", "/wallet/", "node.example", 405),
        ("GET", "/wallet/", "other.example", 421),
        ("GET", "/pay", "node.example", 301),
    ],
)
def test_refused_requests_use_the_read_bucket_too(
    open_node: Callable[..., Node], method: str, path: str, host: str, status: int
) -> None:
    """An error page costs 0.3 ms to draw, so its requests are limited too."""
    rates = {"read": Rate(0.01, 5), "broadcast": Rate(0, 1), "p2p": Rate(0, 1)}
    site = show(open_node(), rates=rates, hosts=PageHosts(frozenset({"node.example"}), addresses=False))
    answers = [site.ask(path, method=method, host=host).status for _ in range(6)]
    assert answers == [status] * 5 + [429]


def test_a_body_over_the_cap_is_413(still: Shown) -> None:
    wire = Wire(still.site).send(b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 16385\r\n\r\n")
    assert wire.response().status == 413


class Heard:
    """A metrics recorder that keeps the labels."""

    def __init__(self) -> None:
        self.routes: Counter[str] = Counter()

    def answered(self, route: str, method: bytes, status: int, seconds: float | None) -> None:
        self.routes[route] += 1

    def throttled(self, bucket: str) -> None:
        pass


def test_metrics_have_one_label_per_kind_of_page(shown: Shown) -> None:
    heard = Heard()
    shown.site.recorder = heard
    for number in range(5):
        shown.ask(f"/block/{number}")
        shown.ask(f"/static/{number}")
        shown.ask(f"/{number}")
    assert heard.routes == {"/block/{block}": 5, "/static/{name}": 5, "": 5}


def test_an_internal_error_shows_only_its_id(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, expected_errors: Callable[..., list[object]]
) -> None:
    def broken() -> None:
        raise OSError("/secret/place")

    monkeypatch.setattr(shown.node.node_context.chain_manager.reader, "tip", broken)
    page = shown.see("/", 500)
    assert "its log has the details under e1" in page.text
    assert "secret" not in page.source
    assert len(expected_errors(OSError)) == 1


# Files


FILES = [
    ("style.css", "text/css; charset=utf-8"),
    ("checkout.mjs", "text/javascript; charset=utf-8"),
    ("icon.svg", "image/svg+xml"),
    ("swagger-ui-bundle.js", "text/javascript; charset=utf-8"),
    ("bip39-english.txt", "text/plain; charset=utf-8"),
]
FOR_EVER = "public, max-age=31536000, immutable"


@pytest.mark.parametrize("accepted", ["", "gzip, deflate, br"])
@pytest.mark.parametrize(("name", "kind"), FILES)
def test_file_type_and_revalidation(still: Shown, name: str, kind: str, accepted: str) -> None:
    for target, caching in ((f"/static/{name}", "no-cache"), (static_files().url(name), FOR_EVER)):
        first = still.ask(target, Accept_Encoding=accepted)
        assert (first.status, first.headers["content-type"]) == (200, kind)
        assert (first.headers["cache-control"], first.headers["vary"]) == (caching, "Accept-Encoding")
        assert first.headers.get("content-encoding") == ("gzip" if accepted else None)
        tag = first.headers["etag"]
        assert tag == f'"{sha256(first.body).hexdigest()[:32]}"'
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = still.ask(target, If_None_Match=known, Accept_Encoding=accepted)
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", tag)
            assert (again.headers["cache-control"], again.headers["vary"]) == (caching, "Accept-Encoding")
            assert "content-security-policy" in again.headers
            assert "content-length" not in again.headers
        unusual = still.ask(target, If_None_Match=tag, Accept_Encoding=accepted, Connection="close")
        assert (unusual.status, "content-length" in unusual.headers) == (304, False)
        assert still.ask(target, If_None_Match='"other"', Accept_Encoding=accepted).status == 200


PAGES = ["/", "/block/0", "/mempool", "/search?q=x", "/nothing", "/pay/"]


@pytest.mark.parametrize("target", [*[f"/static/{name}" for name, _ in FILES], "/wallet/", "/reference/", *PAGES])
def test_the_compressed_form_has_the_same_content(still: Shown, target: str) -> None:
    plain, compressed = still.ask(target), still.ask(target, Accept_Encoding="gzip")
    assert gzip.decompress(compressed.body) == plain.body
    assert compressed.headers["content-encoding"] == "gzip"
    assert compressed.headers["vary"].split(", ")[-1] == "Accept-Encoding"
    assert plain.headers["vary"] == compressed.headers["vary"]
    head = still.ask(target, "HEAD", Accept_Encoding="gzip")
    assert head.headers["content-length"] == str(len(compressed.body))


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("br;q=1.0, gzip;q=0.1", True),
        ("*", True),
        ("identity, *;q=0", False),
        ("gzip;q=0, *", False),
        ("gzip;q=0.000", False),
        ("br", False),
        ("", False),
        ("gzipped", False),
        (";;;=,", False),
    ],
)
def test_gzip_is_sent_only_where_it_is_accepted(still: Shown, accepted: str, taken: bool) -> None:
    headers = still.ask("/static/style.css", Accept_Encoding=accepted).headers
    assert ("content-encoding" in headers) == taken


@pytest.mark.parametrize("target", ["/static/style.css", "/wallet/", "/reference/"])
@pytest.mark.parametrize("condition", ["", "If-None-Match: *\r\n"])
def test_both_parsers_give_the_same_bytes(still: Shown, target: str, condition: str) -> None:
    """A percent-encoded letter in the path leads a request past the fast path."""
    encoded = (
        target.replace("/static/", "/stati%63/")
        .replace("/wallet/", "/walle%74/")
        .replace("/reference/", "/referenc%65/")
    )
    head = f"HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n{condition}\r\n"
    fast, slow = (Wire(still.site).send(f"GET {path} {head}".encode()).response() for path in (target, encoded))
    assert (fast.status, fast.headers, fast.body) == (slow.status, slow.headers, slow.body)
    assert fast.headers["content-encoding" if fast.status == 200 else "etag"]


def test_a_file_that_has_changed_is_not_found_under_its_earlier_name(still: Shown) -> None:
    assert still.ask("/static/wallet.0123456789abcdef.mjs").status == 404


@pytest.mark.parametrize("target", [*SEARCHABLE, PAY, "/wallet/", "/reference/"])
def test_pages_load_files_that_browsers_may_keep(still: Shown, target: str) -> None:
    loaded = [each for each in still.see(target).loads if each.startswith("/static/")]
    assert loaded
    assert {still.ask(each).headers["cache-control"] for each in loaded} == {FOR_EVER}


def test_word_list_is_that_of_the_command_line(still: Shown) -> None:
    words = still.ask("/static/bip39-english.txt").body.decode().split()
    assert words == Mnemonic("english").wordlist


@pytest.mark.parametrize("target", ["/", "/block/1", "/block/1?first=20", PAY])
def test_a_page_is_redrawn_only_when_it_changes(shown: Shown, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    drawn: list[Tag] = []

    def draw(root: Tag, catalogue: Catalogue) -> bytes:
        drawn.append(root)
        return flattened(root, catalogue)

    monkeypatch.setattr(layout, "flattened", draw)
    *blocks, last = shown.node.builder.chain("genesis: b[1..3]\nb2 pays 5000 from alice to bob for order-1").values()
    shown.node.take(*blocks)

    pages = [shown.ask(target).body for _ in range(3)]
    assert len(set(pages)) == len(drawn) == 1
    german = [shown.ask(target, Accept_Language=accepted).body for accepted in ("de", "de-AT,en;q=0.5")]
    assert len({*pages, *german}) == len(drawn) == 2, "once in each language"
    shown.node.take(last)
    shown.ask(target)
    assert len(drawn) == 3, "the chain has changed"
    shown.around.here = evolve(shown.around.here, behind="a peer has more work")
    assert "Do not rely on this node" in shown.ask(target).body.decode()
    assert drawn[3:], "there is a warning"
