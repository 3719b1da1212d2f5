"""The page of the interface has all that the node's own OpenAPI document says, and is served like a file."""

import gzip
import json
import re
import shlex
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from html.parser import HTMLParser
from typing import Any

import pytest
from attrs import define, field
from twisted.internet.defer import Deferred

from svcd.chain.params import MAINNET
from svcd.pages.api_examples import curl, laid_out
from svcd.pages.api_reference import anchor, reference_page
from svcd.pages.html import tag
from svcd.pages.layout import flattened
from svcd.pages.schema_words import KEYWORDS, Schemas
from tests.pages.conftest import Shown, show
from tests.process_level.pages import ROOT
from tests.rpc.node import Node
from tests.schema.documents import public
from tests.web.wire import Wire

ORIGIN = "http://127.0.0.1:8645"
DOCUMENT = public(MAINNET)
VOID = {"br", "hr", "img", "input", "link", "meta"}


@define
class Sections(HTMLParser):
    """The text of each element that has an id, with all that is in it, and where links lead."""

    found: dict[str, str] = field(factory=dict)
    links: list[str] = field(factory=list)
    headings: list[int] = field(factory=list)
    _open: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        place = given.get("id") or ""
        if place:
            self.found[place] = ""
        if tag not in VOID:
            self._open.append(place)
        if tag == "a":
            self.links.append(given.get("href") or "")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()
        self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        for place in filter(None, self._open):
            self.found[place] += data


def read(html: str) -> Sections:
    sections = Sections()
    sections.feed(html)
    return sections


def drawn(document: Any) -> Sections:
    return read(html_of(document))


def html_of(document: Any, origin: str = ORIGIN) -> str:
    return flattened(tag("main", *reference_page(document, origin).content, id="main")).decode()


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def plain(text: str) -> str:
    """A description as the page shows it."""
    return text.replace("`", "").replace("**", "")


def spaced(text: str) -> str:
    return re.sub(r"\s+", "", text)


def missing(document: Any, page: Sections) -> list[str]:
    """What the document has and the page has not."""
    left = []

    def look(place: str, *texts: str) -> None:
        left.extend(
            f"{place}: {text}" for text in texts if spaced(plain(text)) not in spaced(page.found.get(place, ""))
        )

    for method, path, operation in operations(document):
        place = anchor(method, path)
        if place not in page.found:
            left.append(place)
        if method in ("head", "options"):
            continue
        look(place, method.upper(), path, operation["description"], *operation["responses"])
        for each in operation.get("parameters", ()):
            look(place, f"{each['name']} in {each['in']}", each["description"])
        for status, response in operation["responses"].items():
            if status >= "4" and "$ref" not in response:
                look(place, response["description"])
            for media_type, content in response.get("content", {}).items():
                if status < "4" and "json" in media_type:
                    look(place, laid_out(content["example"]))
    look("common-rules", *document["info"]["description"].split("\n\n"))
    for each in document["tags"]:
        look(each["name"], each["description"])
    for response in document["components"]["responses"].values():
        look("common-rules", response["description"])
    for name, hook in document["webhooks"].items():
        look(anchor("event", name), name, hook["post"]["description"])
        for each in hook["post"]["parameters"]:
            look("events", each["name"], each["description"])
    for name, schema in document["components"]["schemas"].items():
        if f"schema-{name.lower()}" not in page.found:
            left.append(f"schema-{name.lower()}")
        look("main", schema.get("description", ""))
        for member in schema.get("properties", {}).values():
            look("main", member.get("description", ""))
    return left


def test_the_page_has_all_that_the_document_says() -> None:
    assert missing(DOCUMENT, drawn(DOCUMENT)) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda one: one["paths"].update({"/rpc/new": one["paths"]["/rpc/status"]}), "get-rpc-new"),
        (
            lambda one: one["paths"]["/rpc/status"]["get"]["parameters"].append(_parameter("more")),
            "get-rpc-status: more in query",
        ),
        (lambda one: one["paths"]["/rpc/status"]["get"]["responses"].update({"418": {"description": "Tea."}}), "Tea."),
        (lambda one: one["components"]["schemas"].update({"New": {"type": "string"}}), "schema-new"),
    ],
)
def test_what_a_page_leaves_out_is_found(change: Callable[[Any], object], expected: str) -> None:
    page, document = drawn(DOCUMENT), deepcopy(DOCUMENT)
    change(document)
    assert any(expected in each for each in missing(document, page))


def _parameter(name: str) -> dict[str, object]:
    return {"name": name, "in": "query", "required": False, "description": "One.", "schema": {}, "example": 1}


def test_every_member_of_every_object_is_shown_once() -> None:
    """Each property of a named object is in a row below its name."""
    page = drawn(DOCUMENT)
    text = " ".join(page.found.values())
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for member in schema.get("properties", {}):
            assert re.search(rf"(^|[\s.]){member}\b", text), (name, member)


def test_links_and_headings_hold() -> None:
    page = drawn(DOCUMENT)
    inside = [link for link in page.links if link.startswith("#")]
    assert len(inside) > 300
    assert {link[1:] for link in inside} - page.found.keys() == set()
    assert {link for link in page.links if not link.startswith("#")} == {"/rpc/openapi.json"}
    assert page.headings[0] == 1
    steps = zip(page.headings, page.headings[1:], strict=False)
    assert all(later <= earlier + 1 for earlier, later in steps)


def test_tables_have_headings() -> None:
    html = html_of(DOCUMENT)
    rows = re.findall("<tbody><tr>.*?</tbody>", html)
    assert rows
    assert all(re.match('<tbody><tr><th scope="row">', each) for each in rows)
    assert html.count("<table") == html.count('<thead><tr><th scope="col">')


def test_tables_and_repeated_headings_say_where_they_belong() -> None:
    html = html_of(DOCUMENT)
    tables = re.findall("<table[^>]*>", html)
    assert len(tables) > 80
    assert all(re.search(' aria-label="[^"]+"', each) for each in tables)
    assert ' aria-label="Body of payment.confirmed"' not in html  # it refers to a schema
    assert ' aria-label="Body of payment.dropped"' in html
    headings = re.findall("<h4>.*?</h4>", html)
    assert len(headings) == len(set(headings)) > 80


def test_a_body_without_members_has_no_table() -> None:
    page = drawn(DOCUMENT)
    for path in ("/rpc/commerce/webhooks/{id}/cancel", "/rpc/commerce/webhooks/{id}/events/{eventId}/redeliver"):
        assert "Body of" not in page.found[anchor("post", path)]
    assert "Body of" in page.found[anchor("post", "/rpc/broadcast")]
    assert "<tbody></tbody>" not in html_of(DOCUMENT)


def test_an_event_is_described_once() -> None:
    page = drawn(DOCUMENT)
    for name, hook in DOCUMENT["webhooks"].items():
        assert page.found[anchor("event", name)].count(hook["post"]["description"]) == 1, name


def test_the_contents_have_every_part() -> None:
    page = drawn(DOCUMENT)
    contents = html_of(DOCUMENT).partition("</nav>")[0]
    linked = set(re.findall('href="#([^"]*)"', contents))
    assert {"common-rules", "security-bearer", "headers", "errors", "schemas", "schema-tip", "event-headers"} <= linked
    assert {anchor("event", name) for name in DOCUMENT["webhooks"]} <= linked
    assert "<details><summary>Contents</summary>" in contents
    assert page.links.count("#contents") > 30


def test_a_line_does_not_end_inside_a_placeholder() -> None:
    html = html_of(DOCUMENT)
    assert '/events/<span class="nobreak">{eventId}</span>/redeliver' in html


def test_amounts_in_requests_have_named_types() -> None:
    section = drawn(DOCUMENT).found["get-rpc-commerce-payment-reference"]
    assert "Pattern" not in section
    assert "BaseUnits" in section


def test_every_keyword_of_the_document_is_known() -> None:
    found: set[str] = set()

    def walk(schema: Any) -> None:
        found.update(schema)
        if not schema:
            return
        for each in schema.get("properties", {}).values():
            walk(each)
        for keyword in ("items", "not"):
            walk(schema.get(keyword, {}))
        for keyword in ("anyOf", "oneOf"):
            for each in schema.get(keyword, ()):
                walk(each)

    def search(part: Any) -> None:
        if isinstance(part, dict):
            for name, value in part.items():
                if name == "schema":
                    walk(value)
                search(value)
        elif isinstance(part, list):
            for each in part:
                search(each)

    search([DOCUMENT["paths"], DOCUMENT["webhooks"], DOCUMENT["components"]["responses"]])
    for schema in DOCUMENT["components"]["schemas"].values():
        walk(schema)
    assert "pattern" in found
    assert found - KEYWORDS == set()


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "minLength": 1, "maxLength": 64}, "string of 1 to 64 characters"),
        ({"type": "string", "minLength": 43, "maxLength": 43}, "string of 43 characters"),
        ({"type": "string", "maxLength": 9, "pattern": "^a$"}, "string of at most 9 characters; pattern ^a$"),
        ({"type": "string", "not": {"enum": [".", ".."]}}, "string, but not . or .."),
        ({"type": "string", "pattern": "a" * 60}, "stringPattern" + "a" * 60),
        ({"type": "string", "format": "binary"}, "string (binary)"),
        ({"type": "integer", "minimum": 0}, "whole number from 0"),
        (
            {"type": "integer", "minimum": 1, "maximum": 100, "default": 25},
            "whole number from 1 to 100; 25 if left out",
        ),
        ({"type": "integer", "maximum": 7}, "whole number up to 7"),
        ({"type": "boolean"}, "true or false"),
        ({"type": "boolean", "const": True}, "always true"),
        ({"enum": ["a", "b"]}, "one of a, b"),
        ({"$ref": "#/components/schemas/Tip"}, "Tip"),
        ({"anyOf": [{"$ref": "#/components/schemas/Tip"}, {"type": "null"}]}, "Tip or null"),
        ({"type": "array", "items": {"type": "string"}}, "list of string"),
        ({"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "integer"}}, "list of 2 whole number"),
        (
            {"type": "array", "maxItems": 9, "uniqueItems": True, "items": {"enum": ["a"]}},
            "list of at most 9 one of a, each once",
        ),
        ({}, "any value"),
    ],
)
def test_a_type_in_words(schema: dict[str, object], words: str) -> None:
    html = flattened(tag("p", *Schemas({}).words(schema))).decode()
    assert re.sub("<[^>]*>", "", html) == words


def test_what_the_document_says_is_escaped() -> None:
    document = deepcopy(DOCUMENT)
    evil = "<script>alert(1)</script>`<b>`"
    status = document["paths"]["/rpc/status"]["get"]
    status["description"] = evil
    status["parameters"].append({**_parameter("<i>"), "description": evil, "schema": {"enum": [evil]}})
    status["responses"]["200"]["content"]["application/json"]["example"] = {"<u>": evil}
    document["info"]["description"] = evil
    html = html_of(document, '"><img>')
    assert re.search("<(script|b|i|u|img)>", html) is None
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 5


def test_json_is_laid_out() -> None:
    value = {"ok": True, "list": [{"name": "ü" * 40}, {"name": "b" * 40}], "empty": {}}
    assert json.loads(laid_out(value)) == value
    assert laid_out({"ok": True}) == '{"ok": true}'
    assert laid_out(value).splitlines()[:3] == ["{", '  "ok": true,', '  "list": [']


def test_a_command_has_what_the_route_needs() -> None:
    operation = DOCUMENT["paths"]["/rpc/commerce/webhooks"]["post"]
    words = shlex.split(curl(ORIGIN, "POST", "/rpc/commerce/webhooks", operation).replace("\\\n", ""))
    assert words[:3] == ["curl", "-s", f"{ORIGIN}/rpc/commerce/webhooks"]
    assert words[3:5] == ["-H", "@authorization"]
    assert json.loads(words[6]) == operation["requestBody"]["content"]["application/json"]["example"]
    cancel = curl(ORIGIN, "POST", "/x/{id}", {"parameters": [{"name": "id", "in": "path", "example": "a b"}]})
    assert cancel == f"curl -s -X POST {ORIGIN}/x/a%20b"


def test_the_commands_ask_routes_of_the_node(open_node: Callable[..., Node]) -> None:
    """Each GET gets an answer that is not about its form."""
    shown = show(open_node())
    document = json.loads(shown.ask("/rpc/openapi.json").body)
    asked = 0
    for method, path, operation in operations(document):
        if method == "get":
            words = shlex.split(curl("", "GET", path, operation))
            answer = shown.ask(words[2], Accept="*/*")
            assert answer.status in (200, 404), (words, answer.body)
            assert answer.status == 200 or "no such path" not in answer.error
            asked += 1
    assert asked >= 15


# How it is served


def test_it_is_served_like_a_file(still: Shown) -> None:
    first = still.ask("/reference/", Accept_Language="de")
    assert (first.status, first.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert (first.headers["cache-control"], first.headers["vary"]) == ("no-cache", "Accept-Encoding")
    assert "form-action 'none'" in first.headers["content-security-policy"]
    assert first.body == still.ask("/reference/").body
    compressed = still.ask("/reference/", Accept_Encoding="gzip")
    assert gzip.decompress(compressed.body) == first.body
    again = still.ask("/reference/", If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert compressed.headers["etag"] != first.headers["etag"]
    head = still.ask("/reference/", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["content-length"] == str(len(first.body))
    refused = still.ask("/reference/", "POST")
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


def test_it_describes_the_node_that_serves_it(still: Shown) -> None:
    page = read(still.ask("/reference/").body.decode())
    assert missing(json.loads(still.ask("/rpc/openapi.json").body), page) == []
    assert "get-p2p-status" not in page.found
    assert "curl -s http://127.0.0.1:18645/rpc/status" in page.found["get-rpc-status"]
    assert "svcd1q" in page.found["get-rpc-balance-address"]


def test_it_is_well_formed_and_loads_its_own_style_sheet(still: Shown) -> None:
    page = still.see("/reference/")
    assert page.title == "API reference · SVC Devnet"
    assert page.all("html", lang="en")
    assert any("reference." in each for each in page.loads)
    assert page.all("script") == []
    assert page.inner_links.count("/rpc/openapi.json") == 2


def test_it_does_not_warn_of_the_node(mainnet: Shown) -> None:
    assert "Do not rely" in mainnet.see("/").visible
    assert "Do not rely" not in mainnet.see("/reference/").visible


def test_paths_beside_it_keep_their_status(still: Shown) -> None:
    redirect = still.ask("/reference")
    assert (redirect.status, redirect.headers["location"]) == (301, "/reference/")
    assert "Payments under a reference" in still.see("/reference/order-1").title
    for target in ("/reference//", "/reference/order-1/", "/reference/a/b", "/Reference/"):
        assert still.ask(target).status == 404, target
    assert still.ask("/reference/%2F").status == 400


@pytest.mark.parametrize("page", ["README.md", "docs/http.md", "docs/pages.md"])
def test_documentation_links_to_it(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "`/reference/`" in text
    assert re.search(r"\]\((docs/)?(pages\.md)?#api-reference\)", text)


def test_explorer_pages_link_to_it(still: Shown) -> None:
    assert "/reference/" in still.see("/").links
    assert "/reference/" not in still.see("/pay/", 400).links


class Thread:
    """A worker whose jobs end when the test says so."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Deferred[Any], Callable[[], Any]]] = []

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Deferred[Any]:
        result: Deferred[Any] = Deferred()
        self.jobs.append((result, partial(function, *args, **kwargs)))
        return result

    def end(self) -> None:
        for result, job in self.jobs:
            result.callback(job())
        self.jobs.clear()


FAST, SLOW = "/reference/", "/referenc%65/"
"""A percent-encoded letter leads a request past the fast path."""


def asked(shown: Shown, target: str) -> Wire:
    return Wire(shown.site).send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


@pytest.mark.parametrize("targets", [(FAST, SLOW, FAST), (SLOW, FAST, SLOW)])
def test_it_is_drawn_once_in_a_thread(open_node: Callable[..., Node], targets: tuple[str, ...]) -> None:
    thread = Thread()
    shown = show(open_node(), worker=thread)
    waiting = [asked(shown, target) for target in targets]
    assert [bytes(wire.received) for wire in waiting] == [b""] * 3
    assert len(thread.jobs) == 1
    thread.end()
    assert {wire.response().body for wire in waiting} == {asked(shown, FAST).response().body}
    assert asked(shown, SLOW).response().status == 200
    assert thread.jobs == []


@pytest.mark.parametrize("target", [FAST, SLOW])
def test_a_client_that_goes_away_leaves_it_to_the_next(open_node: Callable[..., Node], target: str) -> None:
    thread = Thread()
    shown = show(open_node(), worker=thread)
    asked(shown, target).close()
    other = asked(shown, target)
    thread.end()
    assert other.response().status == 200


@pytest.mark.parametrize("target", [FAST, SLOW])
def test_a_drawing_that_fails_is_tried_again(
    open_node: Callable[..., Node], target: str, expected_errors: Callable[..., list[object]]
) -> None:
    thread = Thread()
    shown = show(open_node(), worker=thread)
    wire = asked(shown, target)
    ((result, _),) = thread.jobs
    thread.jobs.clear()
    result.errback(OSError("no thread"))
    assert wire.response().status == 500
    again = asked(shown, target)
    thread.end()
    assert again.response().status == 200
    assert len(expected_errors(OSError)) == 1
